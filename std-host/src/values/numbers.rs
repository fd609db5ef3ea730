//! Numbers as text, as Python and Keras print them.

/// Formats a number as Python prints it. Keras's files contain numbers in this form.
pub(crate) fn python(value: f64) -> String {
    let magnitude = value.abs();
    match value {
        _ if value.is_nan() => "nan".into(),
        _ if value.is_infinite() => if value > 0.0 { "inf" } else { "-inf" }.into(),
        _ if magnitude != 0.0 && !(1e-4..1e16).contains(&magnitude) => exponent(format!("{value:e}")),
        _ => format!("{value:?}"),
    }
}

/// Formats a number for a progress line, with four digits after the point.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        magnitude if magnitude > 1e-3 && magnitude.is_finite() => format!("{value:.4}"),
        magnitude if magnitude.is_finite() => exponent(format!("{value:.4e}")),
        _ => python(value),
    }
}

/// Pads the exponent to two digits, as Python does: `1e-5` becomes `1e-05`.
fn exponent(text: String) -> String {
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
    format!("{digits}e{sign}{exponent:0>2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_python_s() {
        // python3 -c "print([0.1, 1e-5, 123456789.0, 1e22, -2.5e-7, 0.0, float('nan'), -float('inf'), 3.0])"
        let numbers = [0.1, 1e-5, 123456789.0, 1e22, -2.5e-7, 0.0, f64::NAN, f64::NEG_INFINITY, 3.0];
        assert_eq!(numbers.map(python), ["0.1", "1e-05", "123456789.0", "1e+22", "-2.5e-07", "0.0", "nan", "-inf", "3.0"]);
        assert_eq!([0.98765, 0.00012345, 0.0, 12.0, f64::NAN].map(short), ["0.9877", "1.2345e-04", "0.0000e+00", "12.0000", "nan"]);
    }
}
