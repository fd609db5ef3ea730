//! Recurrent layers and cells.

use super::Row;

pub static ROWS: &[Row] = &[];
