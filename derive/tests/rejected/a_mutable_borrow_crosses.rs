use gradlet_core::autograph::autograph;
use gradlet_core::{Result, Tensor};

struct Random(u32);

fn noise(random: &mut Random) -> u32 {
    random.0 += 1;
    random.0
}

#[autograph]
fn f(x: Tensor, mut random: Random) -> Result<Tensor> {
    let mut y = x.clone();
    if x > 0 {
        y = x * noise(&mut random);
    }
    Ok(y)
}

fn main() {}
