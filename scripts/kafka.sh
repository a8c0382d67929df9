#!/usr/bin/env bash
# `spangap meter --kafka` against Kafka itself, as scripts/setup.sh kafka fetches it: `scripts/kafka.sh [forms|apart|collector|kills|gone|rate|fleet]...`
# SPANGAP names the binary, target/release/spangap otherwise.
set -euo pipefail
cd "$(dirname "$0")/.."

not_run() { echo "not run: the meter on Kafka: $1" && exit 0; }
spangap=$(realpath "${SPANGAP:-target/release/spangap}")
command -v java >/dev/null || not_run "there is no java"
command -v openssl >/dev/null || not_run "there is no openssl"
compgen -G 'target/kafka/jars/kafka_*.jar' >/dev/null || not_run "there is no broker in target/kafka/jars; scripts/setup.sh kafka fetches it"
export PYTHONPATH=$PWD/target/kafka/python PYTHONDONTWRITEBYTECODE=1
python3 -c 'import confluent_kafka' 2>/dev/null || not_run "there is no Python package confluent-kafka in target/kafka/python; scripts/setup.sh kafka fetches it"
# The last two of these are measurements, and run only by their names.
if command -v go >/dev/null; then
  (cd scripts/collector && go build -buildvcs=false -trimpath -ldflags '-s -w' -o ../../target/collector .) || echo "not run: the Collector cannot be built, see above"
fi
exec python3 scripts/kafka/test.py "$spangap" "$PWD/target/kafka/jars" "$@"
