//! Checkpoints of variables whose memory the host cannot address.

use super::at_every_place;
use crate::cnn::{Bits, Cnn, bytes};
use gradlet::checkpoint::Checkpoint;
use gradlet::checkpoint::bundle::data_path;
use gradlet_core::{Device, Result, ops};
use gradlet_tests::hiding::Hiding;
use std::sync::Arc;

fn checkpoint(cnn: &Cnn) -> Checkpoint<'_> {
    Checkpoint::new().with("model", &cnn.model).with("optimizer", &cnn.optimizer)
}

/// Returns a CNN after one training step.
fn trained(device: &Device) -> Result<Arc<Cnn>> {
    let cnn = Cnn::new(device, 1)?;
    let (x, labels) = cnn.batch(0)?;
    cnn.step(&cnn.scope, &x, &labels)?;
    Ok(cnn)
}

#[test]
fn a_checkpoint_of_one_device_restores_on_every_other() -> Result<()> {
    let (folder, hiding) = (tempfile::tempdir().unwrap(), Hiding::new());
    let devices = [hiding.device.clone(), Hiding::new().device, ops::portable_cpu()];
    let mut files = Vec::new();
    for (number, from) in devices.iter().enumerate() {
        let cnn = trained(from)?;
        let prefix = checkpoint(&cnn).save(folder.path().join(format!("from_{number}")))?;
        files.push(std::fs::read(data_path(&prefix, 0, 1)).unwrap());
        for to in &devices {
            let built = Cnn::new(to, 2)?;
            assert_ne!(built.state(), cnn.state());
            let saved = checkpoint(&built);
            saved.restore(&prefix)?.assert_existing_objects_matched()?;
            assert_eq!(built.state(), cnn.state());
            // Variables that are created later get their values then.
            let unbuilt = Cnn::unbuilt(to, 2);
            let saved = checkpoint(&unbuilt);
            let status = saved.restore(&prefix)?;
            unbuilt.build()?;
            status.assert_existing_objects_matched()?;
            assert_eq!(unbuilt.state(), cnn.state());
        }
    }
    assert!(files.iter().all(|file| *file == files[0]));
    assert_eq!(hiding.live(), 0);
    Ok(())
}

#[test]
fn a_refused_restore_changes_nothing() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let cnn = trained(&ops::portable_cpu())?;
    let (prefix, wanted) = (checkpoint(&cnn).save(folder.path().join("saved"))?, cnn.state());
    at_every_place(|hiding, place| {
        let own = Cnn::new(&hiding.device, 2)?;
        // Somebody holds the old values, so the new ones need memory of their own.
        let held = own.values();
        let (before, saved) = (own.state(), checkpoint(&own));
        hiding.refuse_after(Some(place));
        let (restored, counts) = hiding.during(|| saved.restore(&prefix).map(drop));
        hiding.refuse_after(None);
        if let Err(error) = restored {
            assert!(error.to_string().contains("has no memory for"), "place {place}: {error}");
            assert!(own.state() == before, "place {place}: a variable changed");
            saved.restore(&prefix)?;
        }
        assert!(own.state() == wanted, "place {place}: the restored values");
        assert!(held.iter().map(bytes).collect::<Bits>() == before, "place {place}: the values that are held");
        Ok(counts.allocations > place)
    })
}
