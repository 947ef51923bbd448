//! Whether one set of measured runs differs from another, and by how much.
