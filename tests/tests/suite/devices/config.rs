//! Rules of a context, and what it refuses. The tests complete `scenarios.json`, which has TensorFlow's results on CPUs.
//!
//! | scenario of TensorFlow's transcripts | test |
//! |---|---|
//! | `list_devices`, `visible_devices`, `reconfigure_before_init`, `thread_settings` | `scenarios.json`, `seeds.rs` |
//! | `two_logical_cpus` | `scenarios.json`, `divided.rs` |
//! | `configure_after_init`, `configure_after_list_logical` | `the_configuration_stays_once_the_devices_are_in_use` |
//! | `invalid_configurations` | `wrong_configurations_are_refused`, `unknown_devices_are_refused_with_a_list` |
//! | `no_visible_cpu` | `a_context_needs_a_cpu` |
//! | `soft_placement_default`, `soft_placement_off` | `scenarios.json`, `placement.rs` |
//! | `log_device_placement` | `seeds.rs`, `hidden.rs` |
//! | `mirrored_*` | `scenarios.json`, `mirrored.rs` |
//!
//! Three results differ from TensorFlow's by design. A CPU can have a memory limit. `get_memory_info` answers for a CPU. A name in another
//! job is an error in `with_device`, not in the first op after it.

use super::{MEMORY, cpu, gpu, machine, machine_in, only, refuses};
use gradlet::config::{Environment, LogicalDeviceConfiguration, PhysicalDevice};
use gradlet::distribute::MirroredStrategy;
use gradlet::{Error, Result, Scope, Tensor};
use gradlet_tests::hiding::HidingGpu;

#[test]
fn unknown_devices_are_refused_with_a_list() -> Result<()> {
    let (context, _) = machine(1);
    let ghost = gpu(1);
    let physical = ["unrecognized device", "GPU:1", "/physical_device:CPU:0", "/physical_device:GPU:0"];
    refuses(context.set_logical_device_configuration(&ghost, &[LogicalDeviceConfiguration::new().memory_limit(1)]), &physical);
    refuses(context.get_logical_device_configuration(&ghost), &physical);
    refuses(context.set_visible_devices(&[cpu(), ghost.clone()], None), &physical);
    refuses(context.set_memory_growth(&ghost, true), &physical);
    refuses(context.get_memory_growth(&ghost), &physical);
    refuses(context.get_device_details(&PhysicalDevice::new("TPU", 0)), &["TPU:0", "/physical_device:GPU:0"]);
    assert!(context.list_physical_devices(Some("TPU")).is_empty());
    let logical = ["GPU:1", "there are CPU:0, GPU:0"];
    refuses(context.device("GPU:1"), &logical);
    refuses(context.get_memory_info("/device:GPU:1"), &logical);
    context.set_soft_device_placement(false);
    refuses(context.scope()?.with_device("GPU:1"), &logical);
    refuses(MirroredStrategy::new(&context, &["GPU:0", "GPU:1"]), &logical);
    Ok(())
}

#[test]
fn wrong_configurations_are_refused() -> Result<()> {
    let (context, _) = machine(2);
    let new = LogicalDeviceConfiguration::new;
    let of = |device: &PhysicalDevice, logical: &[LogicalDeviceConfiguration]| context.set_logical_device_configuration(device, logical);
    refuses(of(&gpu(0), &[new().memory_limit_bytes(0)]), &["GPU:0", "limit of 0 bytes"]);
    refuses(of(&cpu(), &[new(), new().memory_limit(0)]), &["CPU:0", "limit of 0 bytes"]);
    let sizes = [(MEMORY + 1).to_string(), MEMORY.to_string()];
    refuses(of(&gpu(0), &[new().memory_limit_bytes(MEMORY), new().memory_limit_bytes(1)]), &["GPU:0", &sizes[0], &sizes[1]]);
    refuses(of(&gpu(0), &[new().memory_limit(u64::MAX); 3]), &["GPU:0", &sizes[1]]);
    if cfg!(target_os = "linux") {
        refuses(of(&cpu(), &[new().memory_limit_bytes(u64::MAX)]), &["CPU:0", "bytes"]);
    }
    refuses(of(&gpu(1), &[new().memory_limit(1), new()]), &["GPU:1", "memory_limit()"]);
    refuses(of(&cpu(), &[new().threads(0)]), &["CPU:0", "0 threads"]);
    refuses(context.set_memory_growth(&cpu(), true), &["CPU:0", "always grows"]);
    refuses(context.set_visible_devices(&[cpu()], Some("GPU")), &["CPU:0", "its type is not GPU"]);
    // Nothing has changed.
    for device in [cpu(), gpu(0), gpu(1)] {
        assert_eq!(context.get_logical_device_configuration(&device)?, None);
    }
    assert_eq!(context.get_visible_devices(None), [cpu(), gpu(0), gpu(1)]);
    of(&gpu(1), &[new().memory_limit(1); 2])?;
    refuses(context.set_memory_growth(&gpu(1), true), &["GPU:1", "divided into logical devices"]);
    context.set_memory_growth(&gpu(0), true)?;
    let names: Vec<String> = context.list_logical_devices(None)?.iter().map(|one| one.name()).collect();
    assert_eq!(names, ["/device:CPU:0", "/device:GPU:0", "/device:GPU:1", "/device:GPU:2"]);
    Ok(())
}

#[test]
fn the_configuration_stays_once_the_devices_are_in_use() -> Result<()> {
    let (context, machines) = machine(1);
    let half = [LogicalDeviceConfiguration::new().memory_limit_bytes(MEMORY / 2)];
    let two = [LogicalDeviceConfiguration::new().threads(1); 2];
    let all = context.list_physical_devices(None);
    context.set_memory_growth(&gpu(0), false)?;
    context.set_logical_device_configuration(&cpu(), &two)?;
    context.set_logical_device_configuration(&gpu(0), &half)?;
    context.set_intra_op_parallelism_threads(2)?;
    assert!(machines[0].created().is_empty());
    context.list_logical_devices(None)?;
    // The same values are allowed.
    context.set_logical_device_configuration(&cpu(), &two)?;
    context.set_logical_device_configuration(&gpu(0), &half)?;
    context.set_visible_devices(&all, None)?;
    context.set_intra_op_parallelism_threads(2)?;
    context.set_inter_op_parallelism_threads(0)?;
    let late = ["cannot change any more", "in use", "at the beginning"];
    refuses(context.set_logical_device_configuration(&cpu(), &two[..1]), &late);
    refuses(context.set_logical_device_configuration(&gpu(0), &[half[0].memory_limit_bytes(MEMORY)]), &late);
    refuses(context.set_visible_devices(&[], Some("GPU")), &late);
    refuses(context.set_intra_op_parallelism_threads(3), &late);
    refuses(context.set_inter_op_parallelism_threads(3), &late);
    assert_eq!((context.get_intra_op_parallelism_threads(), context.get_visible_devices(None)), (2, all));
    assert_eq!((context.list_logical_devices(None)?.len(), only(&machines[0]).counts().allocations), (3, 0));
    // Placement can change at any time.
    context.set_soft_device_placement(false);
    context.set_log_device_placement(true);
    assert!(!context.get_soft_device_placement() && context.get_log_device_placement());
    let (context, _) = machine(1);
    context.set_memory_growth(&gpu(0), false)?;
    context.scope()?;
    context.set_memory_growth(&gpu(0), false)?;
    refuses(context.set_memory_growth(&gpu(0), true), &late);
    Ok(())
}

#[test]
fn a_context_needs_a_cpu() -> Result<()> {
    let none = ["no CPU devices are available"];
    let (context, _) = machine(1);
    context.set_visible_devices(&[], Some("CPU"))?;
    assert_eq!(context.get_visible_devices(None), [gpu(0)]);
    refuses(context.list_logical_devices(None), &none);
    refuses(context.scope(), &none);
    refuses(context.device("GPU:0"), &none);
    // The context is not in use yet.
    context.set_visible_devices(&[cpu()], Some("CPU"))?;
    context.set_logical_device_configuration(&cpu(), &[])?;
    refuses(context.scope(), &none);
    context.set_logical_device_configuration(&cpu(), &[LogicalDeviceConfiguration::new()])?;
    assert_eq!(context.list_logical_devices(None)?.len(), 2);
    Ok(())
}

#[test]
fn a_cpu_can_have_a_memory_limit() -> Result<()> {
    let (context, _) = machine(0);
    context.set_logical_device_configuration(&cpu(), &[LogicalDeviceConfiguration::new().memory_limit_bytes(4096); 2])?;
    let tensor = Tensor::full(&context.device("CPU:1")?, 1.0f32, &[1000])?;
    let memory = ["CPU:0", "CPU:1"].map(|name| context.get_memory_info(name).unwrap());
    assert_eq!(memory.map(|memory| (memory.current, memory.limit)), [(0, Some(4096)), (4000, Some(4096))]);
    let error = Tensor::full(&tensor.device()?, 1.0f32, &[1000]).unwrap_err();
    assert!(matches!(error.root(), Error::OutOfMemory(shortage) if shortage.device == "CPU:1" && shortage.free == 96), "{error}");
    assert_eq!(tensor.sum(&[], false)?.item::<f32>()?, 1000.0);
    Ok(())
}

#[test]
fn the_environment_lists_gpus_up_to_one_that_does_not_exist() -> Result<()> {
    for (listed, chosen) in
        [("1,0", vec![1, 0]), ("1, 7, 0", vec![1]), ("-1", vec![]), ("", vec![]), ("all", vec![]), (" 0 ", vec![0]), ("0,0", vec![])]
    {
        let environment = Environment { cuda_visible_devices: Some(listed.into()), ..Environment::default() };
        let (context, machines) = machine_in(2, &environment);
        let gpus = context.list_logical_devices(Some("GPU"))?;
        assert_eq!(gpus.len(), chosen.len(), "{listed}");
        for (gpu, index) in gpus.iter().zip(chosen) {
            let machine: &HidingGpu = &machines[index];
            assert!(*gpu.device() == only(machine).device, "{listed}: {gpu}");
        }
    }
    Ok(())
}
