# To be sourced by the scripts of the tables: `table NAME [overrides]` runs one and reports it.
#
#   SCALE     paper (the paper's settings, the default), mini (a fifth of CIFAR-10, a small network:
#             minutes a cell on 2 cores) or smoke (digits, seconds a cell)
#   SEEDS     "5 6 7": mean ± std over them (default 5)
#   DATA      folder of the data sets (default datasets); CIFAR, SVHN and STL-10 are downloaded there
#   DATASET   another data set than the scale's; custom for class folders under train/ and val/
#   OUT       folder of the results (default runs/tables); what is finished there is not run again
#   ONLY      rows and columns to run, as "64,256,SimCo"; the others are shown as they are
#   DRY=1     print cells, runs, time and disk, and end
#   LAUNCHER  serial (default), joblib (JOBS at a time on this machine, by default one a GPU), slurm
#
# Arguments are overrides of every cell's config; hydra.launcher.* are the launcher's.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
case ${LAUNCHER:-serial} in
  serial) ;;
  *) EXTRAS=${EXTRAS:+$EXTRAS,}launchers ;;
esac
source "$here/bash/setup.sh"

table() {
  local name=$1 dry=()
  shift
  case ${DRY:-0} in 0 | false | no) ;; *) dry=(--dry) ;; esac
  # shellcheck disable=SC2086 # one word a seed
  simco-table "$name" --scale "${SCALE:-paper}" --seeds ${SEEDS:-5} --data "${DATA:-datasets}" \
    --out "${OUT:-runs/tables}" --only "${ONLY:-}" --launcher "${LAUNCHER:-serial}" \
    ${JOBS:+--jobs "$JOBS"} ${DATASET:+--dataset "$DATASET"} ${dry[@]+"${dry[@]}"} "$@"
}
