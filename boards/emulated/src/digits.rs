//! Labelled images of digits, in the form that the host stores in flash.

use crate::Failure;
use gradlet_core::Session;
use gradlet_core::runtime::SignatureId;

/// Bytes of an image: 28 rows of 28 pixels.
const PIXELS: usize = 784;

/// Labels and images for training and for tests.
pub struct Digits<'a> {
    train: u32,
    test: u32,
    labels: &'a [u8],
    images: &'a [u8],
}

impl<'a> Digits<'a> {
    /// Reads the digits in `bytes`: the counts `u32 train, u32 test`, then all labels, then all images. The labels and the images both
    /// begin with those of the training digits. Returns `None` if the length of `bytes` does not match the counts.
    pub fn read(bytes: &'a [u8]) -> Option<Digits<'a>> {
        let (train, rest) = bytes.split_first_chunk()?;
        let (test, rest) = rest.split_first_chunk()?;
        let (train, test) = (u32::from_le_bytes(*train), u32::from_le_bytes(*test));
        let (labels, images) = rest.split_at_checked(train.checked_add(test)? as usize)?;
        (images.len() == labels.len().checked_mul(PIXELS)?).then_some(Digits { train, test, labels, images })
    }

    /// Returns the training digits, each as label and pixels.
    pub fn train(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        self.all().take(self.train as usize)
    }

    /// Returns the test digits, each as label and pixels.
    pub fn test(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        self.all().skip(self.train as usize)
    }

    /// Returns the number of test digits.
    pub fn test_count(&self) -> u32 {
        self.test
    }

    fn all(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        self.labels.iter().copied().zip(self.images.chunks_exact(PIXELS))
    }
}

/// Sets input 0 of `signature` to the image. Each pixel is divided by 255.
pub fn set_picture(session: &mut Session<'_, '_>, signature: SignatureId, pixels: &[u8]) -> Result<(), Failure> {
    let input = session.input_mut::<f32>(signature, 0)?;
    input.iter_mut().zip(pixels).for_each(|(value, &pixel)| *value = f32::from(pixel) / 255.0);
    Ok(())
}

/// Sets input 1 of `signature` to the label.
pub fn set_label(session: &mut Session<'_, '_>, signature: SignatureId, label: u8) -> Result<(), Failure> {
    session.input_mut::<i32>(signature, 1)?.fill(label.into());
    Ok(())
}

/// Result of a pass over the test digits.
pub struct Score {
    /// Number of digits that were classified correctly.
    pub correct: u32,
    /// Mean cross-entropy, in millionths.
    pub loss_millionths: u32,
    /// Largest instruction count of an inference.
    pub instructions: u32,
}

/// Runs `infer` on all test digits.
pub fn score(session: &mut Session<'_, '_>, infer: SignatureId, digits: &Digits<'_>) -> Result<Score, Failure> {
    let (mut score, mut loss) = (Score { correct: 0, loss_millionths: 0, instructions: 0 }, 0.0f32);
    for (label, pixels) in digits.test() {
        set_picture(session, infer, pixels)?;
        let (result, instructions) = crate::counter::measure(|| session.run(infer));
        result?;
        score.instructions = score.instructions.max(instructions);
        let logits = session.output::<f32>(infer, 0)?;
        let best =
            logits.iter().enumerate().fold((0, f32::MIN), |best, (digit, &logit)| if logit > best.1 { (digit, logit) } else { best });
        score.correct += u32::from(best.0 == usize::from(label));
        let sum: f32 = logits.iter().map(|logit| libm::expf(logit - best.1)).sum();
        loss += libm::logf(sum) + best.1 - logits.get(usize::from(label)).copied().unwrap_or(best.1);
    }
    score.loss_millionths = (loss / digits.test as f32 * 1e6) as u32;
    Ok(score)
}
