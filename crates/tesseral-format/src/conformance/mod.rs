//! What every format must pass.
