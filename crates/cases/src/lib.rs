//! Where agents, spans and verdicts meet: which host a span is of, what opens a case, what is in its folder.
