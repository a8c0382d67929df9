//! What users see: text, JSON, pictures; pure.
