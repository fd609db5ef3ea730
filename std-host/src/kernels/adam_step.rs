//! Adam's step.

use super::product::ARCH;
use crate::team;
use gradlet_core::op::{Call, Kernel};
use gradlet_core::ops::adam_step;
use gradlet_core::ops::adam_step::Attributes;
use gradlet_core::{DType, Error, Result};

/// The elements that a thread computes at a time.
const BLOCK: usize = 1 << 12;

/// [`adam_step`].
pub static ADAM_STEP: Kernel = Kernel { def: &adam_step::DEF, dtype: DType::F32, run };

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    let rule = Rule::new(call.attributes()?, call.input(4)?.scalar(), call.input(5)?.scalar());
    let (gradient, inputs) = (call.input(3)?.slice::<f32>(), call.inputs);
    let [w, m, v] = call.outputs else { return Err(Error::Arity { got: call.outputs.len() as u8 }) };
    let old = [inputs[0], inputs[1], inputs[2]].map(|input| Some(input.slice::<f32>()).filter(|_| !input.in_place()));
    let [w, m, v] = [w, m, v].map(|output| output.slice_mut::<f32>().chunks_mut(BLOCK));
    let blocks = w.zip(m).zip(v).zip(gradient.chunks(BLOCK)).enumerate();
    team::each(gradient.len() >= 8 * BLOCK, blocks, |(index, (((w, m), v), gradient))| {
        let mut state = [w, m, v];
        for (old, new) in old.iter().zip(&mut state) {
            if let Some(old) = old {
                new.copy_from_slice(&old[index * BLOCK..][..new.len()]);
            }
        }
        rule.apply(state, gradient);
    });
    Ok(())
}

/// What a step does to each element.
#[derive(Clone, Copy)]
pub(super) struct Rule {
    rate_1: f32,
    rate_2: f32,
    alpha: f32,
    epsilon: f32,
}

impl Rule {
    /// The rule of the step after `iterations` steps.
    pub(super) fn new(attributes: Attributes, learning_rate: f32, iterations: i64) -> Rule {
        let Attributes { beta_1, beta_2, epsilon, rate_1, rate_2 } = attributes;
        let step = u32::try_from(iterations.saturating_add(1)).unwrap_or(u32::MAX) as f32;
        let alpha = learning_rate * ((1.0 - beta_2.powf(step)).sqrt() / (1.0 - beta_1.powf(step)));
        Rule { rate_1, rate_2, alpha, epsilon }
    }

    /// Steps `[w, m, v]` against `gradient`.
    pub(super) fn apply(self, [w, m, v]: [&mut [f32]; 3], gradient: &[f32]) {
        let Rule { rate_1, rate_2, alpha, epsilon } = self;
        ARCH.dispatch(
            #[inline(always)]
            || {
                for (((w, m), v), &g) in w.iter_mut().zip(m).zip(v).zip(gradient) {
                    *m += (g - *m) * rate_1;
                    *v += (g * g - *v) * rate_2;
                    *w -= *m * alpha / (v.sqrt() + epsilon);
                }
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Random, Value, same};
    use super::*;

    #[test]
    fn as_the_portable_kernel() {
        for (seed, count) in [(1, 0), (2, 1), (3, 100), (4, 40_000), (5, 8 * BLOCK as u32 + 3)] {
            let random = &mut Random::new(seed);
            let [w, m, mut v, gradient] = [(); 4].map(|()| random.tensor(&[count]));
            v.floats_mut().iter_mut().for_each(|v| *v = v.abs());
            let (rate, iterations) = (random.tensor(&[]), Value::zeros(DType::I64, &[]));
            let words = [0.9f32, 0.999, 1e-7, 0.1, 0.001].map(f32::to_bits);
            assert!(same(&ADAM_STEP, &adam_step::F32, &words, &[&w, &m, &v, &gradient, &rate, &iterations]));
        }
    }
}
