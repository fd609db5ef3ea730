//! The programs of TensorFlow's tutorials about devices, which print what the tutorials show.
//!
//! Differences are few. A GPU of a test has 2 MiB, so a limit of 1 or 2 GiB in a tutorial is 1 MiB here. A tensor is on the device on which
//! the program creates it, and a scope's device is the GPU, so the programs name the CPU where TensorFlow has tensors there without being
//! asked. The log also has copies, which TensorFlow does not print: they are counted.

use super::{MEMORY, gpu, machine, machine_in, member, only};
use gradlet::config::{Context, Environment, LogicalDeviceConfiguration};
use gradlet::distribute::MirroredStrategy;
use gradlet::{Error, Result, Scope, Tensor};
use std::fmt::Display;
use std::sync::{Arc, Mutex};

/// Memory limit of a logical device, in MiB.
const LIMIT: u64 = 1;

/// Output of a program: what it prints, and its placement log without copies.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<Printed>>);

#[derive(Default)]
struct Printed {
    text: String,
    copies: usize,
}

impl Output {
    /// Turns on the placement log of `context`, and collects it.
    fn logging(context: &Context) -> Output {
        let output = Output::default();
        let own = output.clone();
        context.log_to(move |line| own.print(line));
        context.set_log_device_placement(true);
        output
    }

    fn print(&self, line: impl Display) {
        let (mut printed, line) = (self.0.lock().unwrap(), line.to_string());
        match line.starts_with("Copying ") {
            true => printed.copies += 1,
            false => printed.text += &(line + "\n"),
        }
    }

    /// Prints a device's full name as Python prints a string.
    fn print_device(&self, tensor: &Tensor) -> Result<()> {
        self.print(format!("'{}'", tensor.device()?.full_name()));
        Ok(())
    }

    /// Returns the text.
    fn text(&self) -> String {
        self.0.lock().unwrap().text.clone()
    }

    /// Returns the number of copies.
    fn copies(&self) -> usize {
        self.0.lock().unwrap().copies
    }
}

/// Returns a text with one space in place of each line break and its indentation. The tutorials break long lists.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Creates the tutorials' matrices on the device of `scope`.
fn matrices(scope: &dyn Scope) -> Result<[Tensor; 2]> {
    let a = Tensor::new(&scope.device(), &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3])?;
    let b = Tensor::new(&scope.device(), &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2])?;
    Ok([a, b])
}

/// Multiplies the tutorials' matrices in `tf.device(name)`, and returns the output with the product.
fn product_on(context: &Context, name: &str) -> Result<(Output, Tensor)> {
    let output = Output::logging(context);
    let scope = context.scope()?;
    let _there = scope.with_device(name)?;
    let [a, b] = matrices(&scope)?;
    let c = a.matmul(&b)?;
    assert_eq!(c.to_vec::<f32>()?, [22.0, 28.0, 49.0, 64.0]);
    Ok((output, c))
}

#[test]
fn a_workstation_lists_four_gpus_and_a_cpu() {
    let (context, _) = machine(4);
    let gpus = context.list_physical_devices(Some("GPU"));
    let cpus = context.list_physical_devices(Some("CPU"));
    let shown = "
        [PhysicalDevice(name='/physical_device:GPU:0', device_type='GPU'),
         PhysicalDevice(name='/physical_device:GPU:1', device_type='GPU'),
         PhysicalDevice(name='/physical_device:GPU:2', device_type='GPU'),
         PhysicalDevice(name='/physical_device:GPU:3', device_type='GPU')]
        [PhysicalDevice(name='/physical_device:CPU:0', device_type='CPU')]";
    assert_eq!(format!("{gpus:?} {cpus:?}"), flat(shown));
}

#[test]
fn two_of_four_gpus_are_visible() -> Result<()> {
    let (context, machines) = machine(4);
    let gpus = context.list_physical_devices(Some("GPU"));
    context.set_visible_devices(&gpus[0..2], Some("GPU"))?;
    assert_eq!(context.get_visible_devices(Some("GPU")), gpus[0..2]);
    assert_eq!(context.list_logical_devices(Some("GPU"))?.len(), 2);
    assert_eq!(machines.iter().map(|one| one.created().len()).collect::<Vec<_>>(), [1, 1, 0, 0]);
    Ok(())
}

#[test]
fn no_gpu_is_visible() -> Result<()> {
    let (context, _) = machine(1);
    let physical = "
        [PhysicalDevice(name='/physical_device:CPU:0', device_type='CPU'),
         PhysicalDevice(name='/physical_device:GPU:0', device_type='GPU')]";
    assert_eq!(format!("{:?}", context.list_physical_devices(None)), flat(physical));
    context.set_visible_devices(&[], Some("GPU"))?;
    let shown = "[LogicalDevice(name='/device:CPU:0', device_type='CPU')]";
    assert_eq!(format!("{:?}", context.list_logical_devices(None)?), shown);
    Ok(())
}

#[test]
fn only_the_first_of_two_gpus_is_visible() -> Result<()> {
    let (context, _) = machine(2);
    let physical = "
        [PhysicalDevice(name='/physical_device:CPU:0', device_type='CPU'),
         PhysicalDevice(name='/physical_device:GPU:0', device_type='GPU'),
         PhysicalDevice(name='/physical_device:GPU:1', device_type='GPU')]";
    assert_eq!(format!("{:?}", context.list_physical_devices(None)), flat(physical));
    context.set_visible_devices(&context.list_physical_devices(Some("GPU"))[..1], Some("GPU"))?;
    let logical = "
        [LogicalDevice(name='/device:CPU:0', device_type='CPU'),
         LogicalDevice(name='/device:GPU:0', device_type='GPU')]";
    assert_eq!(format!("{:?}", context.list_logical_devices(None)?), flat(logical));
    Ok(())
}

#[test]
fn cuda_visible_devices_chooses_two_of_four_gpus() -> Result<()> {
    let environment = Environment { cuda_visible_devices: Some("2,3".into()), ..Environment::default() };
    let (context, machines) = machine_in(4, &environment);
    assert_eq!(context.list_physical_devices(Some("GPU")), [gpu(0), gpu(1)]);
    assert_eq!(context.list_logical_devices(Some("GPU"))?.len(), 2);
    assert_eq!(machines.iter().map(|one| one.created().len()).collect::<Vec<_>>(), [0, 0, 1, 1]);
    let first = context.device("GPU:0")?;
    assert!(first == only(&machines[2]).device && first.name() == "GPU:0");
    Ok(())
}

/// Sets the memory growth of all GPUs to `enable`, in `environment`. Returns what the program prints, and what each device was told.
fn growing(enable: bool, environment: &Environment) -> Result<(String, Vec<bool>)> {
    let (context, machines) = machine_in(2, environment);
    for gpu in context.list_physical_devices(Some("GPU")) {
        context.set_memory_growth(&gpu, enable)?;
    }
    let printed = format!("{:?}", context.list_logical_devices(Some("GPU"))?);
    let told: Vec<bool> = machines.iter().flat_map(|one| one.created()).map(|(_, options)| options.memory_growth).collect();
    assert_eq!(told, [context.get_memory_growth(&gpu(0))?, context.get_memory_growth(&gpu(1))?]);
    Ok((printed, told))
}

#[test]
fn the_memory_of_all_gpus_grows() -> Result<()> {
    let shown = "
        [LogicalDevice(name='/device:GPU:0', device_type='GPU'),
         LogicalDevice(name='/device:GPU:1', device_type='GPU')]";
    assert_eq!(growing(true, &Environment::default())?, (flat(shown), vec![true; 2]));
    assert_eq!(growing(false, &Environment::default())?, (flat(shown), vec![false; 2]));
    Ok(())
}

#[test]
fn the_environment_decides_how_memory_grows() -> Result<()> {
    for (text, forced) in [("True", Some(true)), ("true", Some(true)), ("false", Some(false)), ("maybe", None)] {
        let environment = Environment { force_gpu_allow_growth: Some(text.into()), ..Environment::default() };
        for set in [true, false] {
            assert_eq!(growing(set, &environment)?.1, [forced.unwrap_or(set); 2], "{text} and {set}");
        }
    }
    Ok(())
}

#[test]
fn a_gpu_with_a_memory_limit_refuses_more() -> Result<()> {
    let (context, machines) = machine(1);
    let gpus = context.list_physical_devices(Some("GPU"));
    context.set_logical_device_configuration(&gpus[0], &[LogicalDeviceConfiguration::new().memory_limit(LIMIT)])?;
    let shown = "[LogicalDevice(name='/device:GPU:0', device_type='GPU')]";
    assert_eq!(format!("{:?}", context.list_logical_devices(Some("GPU"))?), shown);
    let (_, options) = machines[0].created()[0];
    assert_eq!((options.memory_limit, options.only), (Some(LIMIT << 20), true));
    let device = context.scope()?.device();
    let all = Tensor::full(&device, 0u8, &[(LIMIT << 20) as u32])?;
    let error = Tensor::full(&device, 0u8, &[1]).unwrap_err();
    let Error::OutOfMemory(shortage) = error.root() else { panic!("{error}") };
    assert_eq!((shortage.device.as_str(), shortage.limit, shortage.free), ("GPU:0", Some(LIMIT << 20), 0));
    drop(all);
    Tensor::full(&device, 0u8, &[1])?;
    Ok(())
}

/// Divides the only GPU of a machine into two logical ones.
fn divided_gpu() -> Result<Context> {
    let (context, _) = machine(1);
    let gpus = context.list_physical_devices(Some("GPU"));
    assert_eq!(2 * (LIMIT << 20), MEMORY);
    context.set_logical_device_configuration(&gpus[0], &[LogicalDeviceConfiguration::new().memory_limit(LIMIT); 2])?;
    Ok(context)
}

#[test]
fn one_gpu_simulates_two() -> Result<()> {
    let context = divided_gpu()?;
    let shown = "
        [LogicalDevice(name='/device:GPU:0', device_type='GPU'),
         LogicalDevice(name='/device:GPU:1', device_type='GPU')]";
    assert_eq!(format!("{:?}", context.list_logical_devices(Some("GPU"))?), flat(shown));
    // The memory of one is not that of the other.
    let scope = context.scope()?;
    let all = Tensor::full(&member(&scope, "GPU:0")?, 0u8, &[(LIMIT << 20) as u32])?;
    let other = Tensor::full(&member(&scope, "GPU:1")?, 1u8, &[(LIMIT << 20) as u32])?;
    assert_eq!([all.device()?.name(), other.device()?.name()], ["GPU:0", "GPU:1"]);
    assert!(context.get_memory_info("GPU:0")?.current == LIMIT << 20 && all.bytes()? != *other.bytes()?);
    Ok(())
}

#[test]
fn a_strategy_counts_the_simulated_gpus() -> Result<()> {
    for names in [&["GPU:0", "GPU:1"][..], &["/gpu:0", "/gpu:1"], &[]] {
        let strategy = MirroredStrategy::new(&divided_gpu()?, names)?;
        assert_eq!(format!("Number of devices: {}", strategy.num_replicas_in_sync()), "Number of devices: 2");
        let devices: Vec<String> = strategy.devices().iter().map(|device| format!("'{}'", device.full_name())).collect();
        let shown = "('/job:localhost/replica:0/task:0/device:GPU:0', '/job:localhost/replica:0/task:0/device:GPU:1')";
        assert_eq!(format!("({})", devices.join(", ")), shown);
    }
    Ok(())
}

#[test]
fn a_product_of_tensors_of_the_cpu_runs_on_the_gpu() -> Result<()> {
    let (context, _) = machine(1);
    let output = Output::logging(&context);
    let scope = context.scope()?;
    let there = scope.with_device("CPU:0")?;
    let [a, b] = matrices(&scope)?;
    drop(there);
    output.print_device(&a)?;
    output.print_device(&b)?;
    let c = a.matmul(&b)?;
    output.print_device(&c)?;
    let shown = "'/job:localhost/replica:0/task:0/device:CPU:0'
'/job:localhost/replica:0/task:0/device:CPU:0'
Executing op MatMul in device /job:localhost/replica:0/task:0/device:GPU:0
'/job:localhost/replica:0/task:0/device:GPU:0'
";
    assert_eq!((output.text().as_str(), output.copies()), (shown, 2));
    assert_eq!(c.to_vec::<f32>()?, [22.0, 28.0, 49.0, 64.0]);
    Ok(())
}

#[test]
fn ops_run_on_the_named_device() -> Result<()> {
    for (name, short) in [("/CPU:0", "CPU:0"), ("/GPU:1", "GPU:1")] {
        let (output, c) = product_on(&machine(2).0, name)?;
        let shown = format!("Executing op MatMul in device /job:localhost/replica:0/task:0/device:{short}\n");
        assert_eq!((output.text(), output.copies()), (shown, 0));
        assert_eq!(c.device()?.name(), short);
    }
    Ok(())
}

#[test]
fn a_missing_device_is_an_error_without_soft_placement() {
    let (context, _) = machine(1);
    context.set_soft_device_placement(false);
    let error = product_on(&context, "/GPU:1").err().unwrap().to_string();
    assert!(["GPU:1", "CPU:0", "GPU:0"].iter().all(|name| error.contains(name)), "{error}");
}

#[test]
fn a_missing_device_is_replaced_with_soft_placement() -> Result<()> {
    let (context, _) = machine(1);
    context.set_soft_device_placement(true);
    let (output, c) = product_on(&context, "/GPU:1")?;
    let shown = "Executing op MatMul in device /job:localhost/replica:0/task:0/device:GPU:0\n";
    assert_eq!((output.text().as_str(), output.copies(), c.device()?.name()), (shown, 0, "GPU:0"));
    Ok(())
}
