#!/usr/bin/env bash
# Reads the spans that a meter exports as Parquet with DuckDB, pyarrow and the engine of ClickHouse, as scripts/setup.sh parquet fetches
# them. SPANGAP names the binary, target/release/spangap otherwise.
set -euo pipefail
cd "$(dirname "$0")/.."

spangap=$(realpath "${SPANGAP:-target/release/spangap}")
export PYTHONPATH=${READERS:-$PWD/target/parquet/python:$PWD/target/tools/chdb}:$PWD/scripts/kafka PYTHONDONTWRITEBYTECODE=1
exec python3 scripts/parquet/test.py "$spangap"
