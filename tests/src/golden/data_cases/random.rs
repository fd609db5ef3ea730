//! Cases of random stages. They compare the properties of the results, not TensorFlow's random numbers.

use crate::golden::checks::{Checks, json};
use anyhow::{Context, Result, bail, ensure};
use gradlet::Dataset;
use gradlet::data::Shuffle;
use serde_json::Value as Json;
use std::path::Path;

/// Runs `random.json`: the orders and choices of TensorFlow's runs, and their properties.
pub fn random(folder: &Path, checks: &mut Checks) -> Result<()> {
    let cases = json(folder, "random.json")?;
    for run in cases["shuffle_runs"].as_array().context("no shuffle_runs")? {
        let name = format!("shuffle({}) of {}, reshuffled: {}", run["buffer_size"], run["n"], run["reshuffle_each_iteration"]);
        checks.check(&name, || shuffled(run));
    }
    let seeds = &cases["repeat_and_seed"];
    checks.check("repeat and seed", || repeated(seeds));
    checks.check("every element of the window is as likely", || uniform(&seeds["first_element_counts"]));
    for run in cases["sample_from_datasets"].as_array().context("no sample_from_datasets")? {
        checks.check(&format!("sample_from_datasets of {} by {}", run["sizes"], run["weights"]), || sampled(run));
    }
    for (name, wanted) in cases["sample_errors"].as_object().context("no sample_errors")? {
        checks.check(&format!("sample_from_datasets, {name}"), || sample_error(name, wanted));
    }
    Ok(())
}

fn number(json: &Json) -> Result<i64> {
    json.as_i64().with_context(|| format!("{json} is not an integer"))
}

fn all(dataset: &Dataset<i64>) -> Result<Vec<i64>> {
    Ok(dataset.iter().collect::<gradlet::Result<_>>()?)
}

fn sorted(mut values: Vec<i64>) -> Vec<i64> {
    values.sort_unstable();
    values
}

fn shuffled(run: &Json) -> Result<()> {
    let (count, size, seed) = (number(&run["n"])?, number(&run["buffer_size"])?, number(&run["seed"])?);
    let reshuffle = run["reshuffle_each_iteration"] == true;
    let options = Shuffle::new(size as usize).seed(seed as u64).reshuffle_each_iteration(reshuffle);
    let dataset = Dataset::range(0..count).shuffle(options);
    let epochs = run["epochs"].as_array().context("no epochs")?;
    let epochs: Vec<Vec<i64>> = epochs.iter().map(|_| all(&dataset)).collect::<Result<_>>()?;
    for epoch in &epochs {
        ensure!(sorted(epoch.clone()) == (0..count).collect::<Vec<_>>(), "{epoch:?} is not a permutation of all elements");
        let early = epoch.iter().enumerate().map(|(place, value)| value - place as i64).max().unwrap_or(0);
        ensure!(early <= number(&run["max_forward_displacement_bound"])?, "{epoch:?}: an element comes {early} positions early");
    }
    let differ = epochs.windows(2).any(|pair| pair[0] != pair[1]);
    ensure!(differ == (reshuffle && size > 1), "orders of the epochs: {epochs:?}");
    let again = Dataset::range(0..count).shuffle(options);
    ensure!(all(&again)? == epochs[0], "the same seed produces another order");
    Ok(())
}

fn repeated(wanted: &Json) -> Result<()> {
    ensure!(wanted["reshuffle_default"] == true && wanted["same_global_and_op_seed_twice_equal"] == true, "TensorFlow changed");
    let five = |options: Shuffle| Dataset::range(0..5).shuffle(options);
    let each = all(&five(Shuffle::new(5).seed(3)).repeat_times(3))?;
    ensure!(each.chunks(5).all(|epoch| sorted(epoch.to_vec()) == [0, 1, 2, 3, 4]), "shuffle, then repeat: {each:?}");
    ensure!(each.chunks(5).any(|epoch| epoch != &each[..5]), "all epochs have the same order: {each:?}");
    let mixed = all(&Dataset::range(0..5).repeat_times(3).shuffle(Shuffle::new(15).seed(3)))?;
    ensure!(sorted(mixed.clone()) == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4], "repeat, then shuffle: {mixed:?}");
    ensure!(mixed.chunks(5).any(|epoch| sorted(epoch.to_vec()) != [0, 1, 2, 3, 4]), "the epochs do not mix: {mixed:?}");
    let batches = Dataset::range(0..7).shuffle(7).batch(3);
    let sizes: Vec<u32> = batches.iter().map(|batch| Ok(batch?.dims()[0])).collect::<gradlet::Result<_>>()?;
    ensure!(sizes == [3, 3, 1], "shuffle, then batch: {sizes:?}");
    Ok(())
}

fn uniform(wanted: &Json) -> Result<()> {
    let (count, size, epochs) = (number(&wanted["n"])?, number(&wanted["buffer_size"])?, number(&wanted["epochs"])?);
    let dataset = Dataset::range(0..count).shuffle(Shuffle::new(size as usize).seed(1));
    let mut counts = vec![0i64; count as usize];
    for _ in 0..epochs {
        let first = dataset.iter().next().context("no element")??;
        counts[first as usize] += 1;
    }
    // Five standard deviations of a fair draw.
    let fair = epochs as f64 / size as f64;
    let bound = 5.0 * (fair * (1.0 - 1.0 / size as f64)).sqrt();
    let (window, rest) = counts.split_at(size as usize);
    ensure!(window.iter().all(|&count| (count as f64 - fair).abs() < bound), "{counts:?}, {fair} expected");
    ensure!(rest.iter().all(|&count| count == 0), "an element from outside the window came first: {counts:?}");
    Ok(())
}

fn sampled(run: &Json) -> Result<()> {
    let sizes: Vec<i64> = run["sizes"].as_array().context("no sizes")?.iter().map(number).collect::<Result<_>>()?;
    let weights: Option<Vec<f64>> = serde_json::from_value(run["weights"].clone())?;
    let stop = run["stop_on_empty_dataset"] == true;
    let sources: Vec<Dataset<i64>> =
        sizes.iter().enumerate().map(|(source, size)| Dataset::range(1000 * source as i64..1000 * source as i64 + size)).collect();
    let elements = all(&Dataset::sample_from_datasets(sources, weights.as_deref(), Some(1), stop))?;
    let of = |source: usize| elements.iter().copied().filter(move |value| value / 1000 == source as i64);
    let mut ended = 0;
    for (source, &size) in sizes.iter().enumerate() {
        let own: Vec<i64> = of(source).map(|value| value % 1000).collect();
        ensure!(own == (0..own.len() as i64).collect::<Vec<_>>(), "the elements of source {source} are in the wrong order");
        ended += usize::from(own.len() as i64 == size);
    }
    match stop {
        true => ensure!(ended >= 1 && elements.len() < sizes.iter().sum::<i64>() as usize, "it does not end with the first source"),
        false => ensure!(ended == sizes.len(), "not all elements of the sources are in the result"),
    }
    // As long as no dataset can have ended, the shares must follow the weights.
    let weights = weights.unwrap_or_else(|| vec![1.0; sizes.len()]);
    let first = sizes.iter().copied().min().unwrap_or(0) as usize;
    for (source, weight) in weights.iter().enumerate() {
        let share = weight / weights.iter().sum::<f64>();
        let got = elements[..first.min(elements.len())].iter().filter(|&&value| value / 1000 == source as i64).count() as f64;
        let bound = 5.0 * (first as f64 * share * (1.0 - share)).sqrt();
        ensure!((got - first as f64 * share).abs() <= bound, "{got} of the first {first} are of source {source}, whose share is {share}");
    }
    Ok(())
}

fn sample_error(name: &str, wanted: &Json) -> Result<()> {
    let two = || vec![Dataset::range(0..1), Dataset::range(1..2)];
    let made = match name {
        "weights_wrong_length" => Dataset::sample_from_datasets(two(), Some(&[1.0]), None, false),
        "no_datasets" => Dataset::sample_from_datasets(Vec::new(), None, None, false),
        // TensorFlow accepts negative weights, but its result follows no rule.
        "negative_weight" => {
            let made = Dataset::sample_from_datasets(two(), Some(&[-1.0, 1.0]), None, false);
            ensure!(made.check().is_err(), "negative weights are accepted");
            return Ok(());
        }
        // Datasets of different types in one list do not compile.
        "different_types" => return Ok(()),
        other => bail!("unknown program {other:?}"),
    };
    let error = made.check().err().context("it succeeds")?.to_string();
    super::same_words(&error, &wanted["error"])
}
