//! The meter's figures for other systems: Prometheus and OTLP metrics.
