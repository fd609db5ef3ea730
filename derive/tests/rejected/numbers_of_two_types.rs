use gradlet_core::Result;
use gradlet_core::autograph::autograph;

struct Percent(f32);

// Of more than four implementations, the compiler shows no sources, which not every machine has.
impl std::ops::Mul<Percent> for f32 {
    type Output = f32;

    fn mul(self, percent: Percent) -> f32 {
        self * percent.0 / 100.0
    }
}

#[autograph]
fn f(x: f32, n: i32) -> Result<f32> {
    Ok(x * n)
}

fn main() {}
