//! Files for the exchange of cases with a machine such as the generic firmware. It reads a file of cases, and writes a file of answers.
//!
//! A case is: `u32` length of the artifact in bytes, `u32` number of inputs, the artifact padded to 16 bytes, then the inputs. An input is
//! a `u32` length in bytes, then the bytes padded to 4. The answer to a case is: `u32` status (0 if it ran, 1 if not), `u32` number of
//! outputs, then the outputs in the same form as the inputs. Numbers are little-endian.

use anyhow::{Context, Result, bail};

/// A file of cases, in the form that the machine reads.
#[derive(Default)]
pub struct Bundle {
    bytes: Vec<u8>,
    cases: usize,
}

impl Bundle {
    /// Adds a case: an artifact with the signature `call`, and the bytes of its inputs.
    pub fn push<'a>(&mut self, artifact: &[u8], inputs: impl ExactSizeIterator<Item = &'a [u8]>) {
        self.number(artifact.len());
        self.number(inputs.len());
        self.padded(artifact, 16);
        for input in inputs {
            self.number(input.len());
            self.padded(input, 4);
        }
        self.cases += 1;
    }

    fn number(&mut self, number: usize) {
        self.bytes.extend((number as u32).to_le_bytes());
    }

    fn padded(&mut self, bytes: &[u8], to: usize) {
        let padding = bytes.len().next_multiple_of(to) - bytes.len();
        self.bytes.extend(bytes);
        self.bytes.extend(&[0; 16][..padding]);
    }

    /// Returns the bytes of the file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Reads the machine's answers. Returns the outputs of each case, or `None` for a case that did not run.
    ///
    /// Fails if the number of answers differs from the number of cases, or if an answer is truncated.
    pub fn answers(&self, bytes: &[u8]) -> Result<Vec<Option<Vec<Vec<u8>>>>> {
        let mut rest = bytes;
        let mut answers = Vec::new();
        for case in 0..self.cases {
            answers.push(answer(&mut rest).with_context(|| format!("the answer to case {case} of {} is truncated", self.cases))?);
        }
        if !rest.is_empty() {
            bail!("{} bytes follow the last answer", rest.len());
        }
        Ok(answers)
    }
}

fn answer(rest: &mut &[u8]) -> Option<Option<Vec<Vec<u8>>>> {
    let (status, outputs) = (take_number(rest)?, take_number(rest)?);
    let outputs = (0..outputs)
        .map(|_| {
            let length = take_number(rest)?;
            let (padded, after) = rest.split_at_checked(length.next_multiple_of(4))?;
            *rest = after;
            Some(padded[..length].to_vec())
        })
        .collect::<Option<_>>()?;
    Some((status == 0).then_some(outputs))
}

fn take_number(rest: &mut &[u8]) -> Option<usize> {
    let (number, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u32::from_le_bytes(*number) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_padded() {
        let mut bundle = Bundle::default();
        bundle.push(&[7; 17], [&[1, 2, 3, 4, 5][..]].into_iter());
        assert_eq!(bundle.bytes().len(), 8 + 32 + 4 + 8);
    }

    #[test]
    fn answers_are_counted() {
        let mut bundle = Bundle::default();
        bundle.push(&[], [].into_iter());
        bundle.push(&[], [].into_iter());
        let ran = [0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 8, 9, 0, 0];
        let failed = [1, 0, 0, 0, 0, 0, 0, 0];
        let answers = bundle.answers(&[&ran[..], &failed].concat()).unwrap();
        assert_eq!(answers, [Some(vec![vec![8, 9]]), None]);
        assert!(bundle.answers(&ran).is_err());
        assert!(bundle.answers(&[&ran[..], &failed, &[0]].concat()).is_err());
    }
}
