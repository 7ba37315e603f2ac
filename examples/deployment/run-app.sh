#!/bin/sh
# Run the server app to its end. Fails unless Flower says "completed", so that a supervisor starts it again: the
# strategy then goes on after the last round in its state_dir, and two runs never use the folder at once.
#
#   sh run-app.sh APP SUPERLINK [SETTINGS]
#
# APP is the app's folder, SUPERLINK a name of $FLWR_HOME/config.toml, SETTINGS what `flwr run -c` takes.
set -eu
[ $# -ge 2 ] || { echo "usage: sh run-app.sh APP SUPERLINK [SETTINGS]" >&2; exit 2; }
told=$(flwr run "$1" "$2" ${3:+-c "$3"} 2>&1) || { printf '%s\n' "$told" >&2; exit 1; }
run=$(printf '%s\n' "$told" | sed -n 's/.*run \([0-9]\{6,\}\).*/\1/p' | head -n 1)
[ -n "$run" ] || { printf '%s\n' "$told" >&2; exit 1; }
echo "run $run has started"
while :; do
  flwr log "$run" "$2" --stream || true # ends with the run, or with the connection
  status=$(flwr list "$2" --run-id "$run" --format json | sed -n 's/.*"status": *"\([a-z:]*\)".*/\1/p')
  case $status in
    finished:completed) echo "run $run: $status"; exit 0 ;;
    pending* | starting* | running*) sleep 5 ;;
    *) echo "run $run: ${status:-the SuperLink does not answer}" >&2; exit 1 ;;
  esac
done
