# To be sourced: an own environment in .venv with the pack in it, made on the first call.
#
# EXTRAS=test adds the test tools. PYTHON names the interpreter (3.10 or later).

_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
_venv=$_root/.venv
_extras=${EXTRAS:-}
_wanted=$(cat "$_root/setup.cfg" "$_root/pyproject.toml"; echo "$_extras")
_stamp=$_venv/installed${_extras:+-$_extras}

_find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3.11 python3.12 python3.13 python3.10 python3; do
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
  "$_venv/bin/python" -m pip install --quiet --editable "$_root${_extras:+[$_extras]}"
  printf '%s' "$_wanted" >"$_stamp"
fi
export PATH="$_venv/bin:$PATH"
