//! Encoding of audio for TensorBoard.

use crate::values::strings::Strings;
use gradlet_core::{DType, Error, Result, Tensor};

/// Default number of audio clips per summary, as in TensorFlow.
pub(super) const MAX_OUTPUTS: u32 = 3;
/// Content of the plugin's metadata. It states that the audio clips are WAV files.
pub(super) const CONTENT: &[u8] = &[0x10, 0x0b];

/// Encodes the first `most` audio clips of `sounds` as WAV files. `sounds` is f32 `[clips, frames, channels]` with samples from
/// -1 to 1. The result has the shape `[clips, 2]`: a file and an empty label for each clip.
pub(super) fn sounds(sounds: &Tensor, sample_rate: u32, most: u32) -> Result<Strings> {
    let (&[count, frames, channels], DType::F32) = (sounds.dims(), sounds.dtype()) else {
        return Err(Error::message(format!("audio must have the type f32[clips,frames,channels], not {}", sounds.tensor_type())));
    };
    let channels = u16::try_from(channels).ok().filter(|&channels| channels > 0);
    let channels = channels.ok_or_else(|| Error::message(format!("audio must have 1 to 65535 channels, not {}", sounds.dims()[2])))?;
    if sample_rate == 0 {
        return Err(Error::message("the sample rate of audio must be at least 1 per second, not 0"));
    }
    let (all, size) = (sounds.to_vec::<f32>()?, frames as usize * usize::from(channels));
    let count = count.min(most);
    let mut strings = Vec::new();
    for index in 0..count as usize {
        strings.extend([wav(&all[index * size..(index + 1) * size], channels, sample_rate)?, Vec::new()]);
    }
    Strings::new(strings.into_iter().map(Into::into).collect(), &[count, 2])
}

/// Encodes samples as a WAV file with 16 bits per sample.
fn wav(samples: &[f32], channels: u16, sample_rate: u32) -> Result<Vec<u8>> {
    let too_long = || Error::message(format!("{} samples are too many for a WAV file", samples.len()));
    let bytes = u32::try_from(samples.len() * 2).ok().filter(|bytes| *bytes <= u32::MAX - 36).ok_or_else(too_long)?;
    let frame = 2 * channels;
    let mut file = Vec::with_capacity(44 + bytes as usize);
    file.extend(b"RIFF");
    file.extend((36 + bytes).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend(16u32.to_le_bytes());
    // Format 1: uncompressed PCM.
    file.extend(1u16.to_le_bytes());
    file.extend(channels.to_le_bytes());
    file.extend(sample_rate.to_le_bytes());
    file.extend(sample_rate.saturating_mul(frame.into()).to_le_bytes());
    file.extend(frame.to_le_bytes());
    file.extend(16u16.to_le_bytes());
    file.extend(b"data");
    file.extend(bytes.to_le_bytes());
    file.extend(samples.iter().flat_map(|sample| ((sample * 32768.0).round() as i16).to_le_bytes()));
    Ok(file)
}
