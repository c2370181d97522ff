# To be sourced: an own environment in .venv with the pack in it, made on the first call.
#
# EXTRAS=test adds the test tools. PYTHON names the interpreter (3.10 or later).
# SOLO_LEARN names a checkout of solo-learn, to be put on the path with what it imports installed.
# SIMCO_STACK=solo-learn-pins makes .venv-solo-learn-pins with the versions in
# bash/solo-learn-pins.txt.

_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
_venv=$_root/.venv${SIMCO_STACK:+-$SIMCO_STACK}
_pins=${SIMCO_STACK:+$_root/bash/$SIMCO_STACK.txt}
_extras=${EXTRAS:-}
if [ -n "$_pins" ] && [ ! -f "$_pins" ]; then
  echo "simco-methods: SIMCO_STACK=$SIMCO_STACK: there is no $_pins" >&2
  exit 2
fi
if [ -n "${SOLO_LEARN:-}" ]; then
  if [ ! -d "$SOLO_LEARN/solo" ]; then
    echo "simco-methods: SOLO_LEARN=$SOLO_LEARN is no checkout of solo-learn" >&2
    exit 2
  fi
  PYTHONPATH=$(cd "$SOLO_LEARN" && pwd)${PYTHONPATH:+:$PYTHONPATH}
  export PYTHONPATH
  _extras=${_extras:+$_extras,}solo
fi
_wanted=$(cat "$_root/setup.cfg" "$_root/pyproject.toml" ${_pins:+"$_pins"}; echo "$_extras")
_stamp=$_venv/installed${_extras:+-$_extras}

_find_python() {
  local candidate
  for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3.12 python3.13 python3.10 python3; do
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "simco-methods: needs Python 3.10 or later with venv (set PYTHON to one)" >&2
  return 1
}

if [ ! -f "$_stamp" ] || [ "$(cat "$_stamp")" != "$_wanted" ]; then
  _python=$(_find_python)
  echo "simco-methods: installing into $_venv (the first time takes minutes)" >&2
  [ -x "$_venv/bin/python" ] || "$_python" -m venv "$_venv"
  "$_venv/bin/python" -m pip install --quiet --upgrade pip
  "$_venv/bin/python" -m pip install --quiet ${_pins:+--constraint "$_pins"} \
    --editable "$_root${_extras:+[$_extras]}"
  printf '%s' "$_wanted" >"$_stamp"
fi
export PATH="$_venv/bin:$PATH"
