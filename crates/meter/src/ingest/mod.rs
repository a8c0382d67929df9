//! Every input format becomes OTLP bytes and goes through one walk.
