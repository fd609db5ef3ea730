//! Compares images, arrays and tables with TensorFlow and NumPy.

use crate::tensorflow::python;
use gradlet::image::{self, ResizeMethod, ResizeOptions};
use gradlet::io::npy::{self, Npy};
use gradlet::{DType, Tensor, io};
use gradlet_tests::golden::image_cases::largest_difference;
use gradlet_tests::random::Random;
use std::path::Path;

const METHODS: [(&str, ResizeMethod); 8] = [
    ("bilinear", ResizeMethod::Bilinear),
    ("nearest", ResizeMethod::Nearest),
    ("bicubic", ResizeMethod::Bicubic),
    ("area", ResizeMethod::Area),
    ("lanczos3", ResizeMethod::Lanczos3),
    ("lanczos5", ResizeMethod::Lanczos5),
    ("gaussian", ResizeMethod::Gaussian),
    ("mitchellcubic", ResizeMethod::MitchellCubic),
];

const RESIZE: &str = r#"
import sys, json, numpy as np, tensorflow as tf
folder, cases = sys.argv[1], json.loads(sys.argv[2])
inputs = np.load(folder + "/inputs.npz")
outputs = {}
for name, size, method, antialias, ratio in cases:
    outputs[name] = tf.image.resize(inputs[name], size, method, antialias=antialias, preserve_aspect_ratio=ratio).numpy()
np.savez_compressed(folder + "/outputs.npz", **outputs)
"#;

/// Resizes images of random shapes. The results have TensorFlow's bits where gradlet promises them, and are close elsewhere. The arrays are
/// exchanged in NPZ files, which NumPy reads and writes.
#[test]
#[ignore = "needs TensorFlow: `cargo xtask test TensorFlow` installs and runs it"]
fn resizes_of_random_shapes() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random::new(11);
    let mut inputs = Vec::new();
    let mut cases = Vec::new();
    let mut own = Vec::new();
    for number in 0..300 {
        let mut dims = vec![random.range(1, 40), random.range(1, 40), random.range(1, 5)];
        if random.coin() {
            dims.insert(0, random.range(1, 3));
        }
        let count = dims.iter().product::<u32>() as usize;
        let x = match random.coin() {
            true => Tensor::new(&gradlet::cpu(), &(0..count).map(|_| random.bits() as u8).collect::<Vec<_>>(), &dims).unwrap(),
            false => {
                Tensor::new(&gradlet::cpu(), &(0..count).map(|_| random.bits() as i32 as f32 * 1e-8).collect::<Vec<_>>(), &dims).unwrap()
            }
        };
        let (name, method) = METHODS[number % METHODS.len()];
        let size = [random.range(2, 50), random.range(2, 50)];
        let (antialias, ratio) = (random.coin(), random.below(4) == 0);
        let options = ResizeOptions::new(method).antialias(antialias).preserve_aspect_ratio(ratio);
        // A size may become 0, which is an error in gradlet and in TensorFlow.
        let Ok(resized) = image::resize(&x, size, options) else { continue };
        let id = format!("case{number}");
        cases.push(format!("[\"{id}\", [{}, {}], \"{name}\", {antialias}, {ratio}]", size[0], size[1]));
        inputs.push((id, Npy::of(&x).unwrap()));
        own.push((name, antialias, x, resized));
    }
    let named: Vec<(&str, &Npy)> = inputs.iter().map(|(name, array)| (name.as_str(), array)).collect();
    npy::write_npz(&folder.path().join("inputs.npz"), &named).unwrap();
    python(RESIZE, &[folder.path().to_str().unwrap(), &format!("[{}]", cases.join(","))]);
    let theirs = npy::read_npz(&folder.path().join("outputs.npz")).unwrap();
    for (((id, _), case), (name, antialias, x, resized)) in inputs.iter().zip(&cases).zip(&own) {
        let want = &theirs[id];
        assert_eq!(resized.tensor_type(), want.tensor_type, "{case}");
        if *name == "nearest" || (*name == "bilinear" && !antialias) {
            assert!(resized.bytes().unwrap() == want.bytes, "{case} of {:?}", x.tensor_type());
        } else {
            let want = want.tensor(&gradlet::cpu()).unwrap().to_vec::<f32>().unwrap();
            let scale = x.cast(DType::F32).unwrap().to_vec::<f32>().unwrap().iter().fold(0.0f32, |most, x| most.max(x.abs()));
            let off = resized.to_vec::<f32>().unwrap().iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off <= 4e-6 * scale, "{case} of {:?}: off by {off} of {scale}", x.tensor_type());
        }
    }
    assert!(own.len() > 250);
}

const ENCODE: &str = r#"
import sys, numpy as np, tensorflow as tf
folder = sys.argv[1]
x = np.load(folder + "/picture.npy")
accurate, default = {}, {}
for quality in (50, 75, 90, 95, 100):
    for downsampling in (True, False):
        for progressive in (True, False):
            name = f"{quality}_{downsampling}_{progressive}.jpg"
            data = tf.io.encode_jpeg(x, quality=quality, chroma_downsampling=downsampling, progressive=progressive)
            tf.io.write_file(folder + "/" + name, data)
            accurate[name] = tf.io.decode_jpeg(data, dct_method="INTEGER_ACCURATE").numpy()
            default[name] = tf.io.decode_jpeg(data).numpy()
np.savez(folder + "/accurate.npz", **accurate)
np.savez(folder + "/default.npz", **default)
np.save(folder + "/own_jpeg.npy", tf.io.decode_jpeg(tf.io.read_file(folder + "/own.jpg"), dct_method="INTEGER_ACCURATE").numpy())
np.save(folder + "/own_png.npy", tf.io.decode_png(tf.io.read_file(folder + "/own.png")).numpy())
"#;

/// Returns an image of smooth waves with some noise, like a photograph.
fn picture(height: u32, width: u32) -> Tensor {
    let mut random = Random::new(3);
    let mut pixels = Vec::new();
    for row in 0..height {
        for column in 0..width {
            for channel in 0..3u32 {
                let (y, x, c) = (row as f32 / 40.0, column as f32 / 40.0, channel as f32);
                let wave = 128.0 + 70.0 * (2.0 * x + 3.0 * y + c).sin() + 40.0 * (5.0 * y - 4.0 * x + 2.0 * c).cos();
                pixels.push((wave + random.below(13) as f32 - 6.0).clamp(0.0, 255.0) as u8);
            }
        }
    }
    Tensor::new(&gradlet::cpu(), &pixels, &[height, width, 3]).unwrap()
}

#[test]
#[ignore = "needs TensorFlow: `cargo xtask test TensorFlow` installs and runs it"]
fn decoders_agree() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let x = picture(203, 301);
    npy::write(&path("picture.npy"), &Npy::of(&x).unwrap()).unwrap();
    let own = image::encode_jpeg(&x, 95).unwrap();
    io::write_file(path("own.jpg"), &own).unwrap();
    io::write_file(path("own.png"), &image::encode_png(&x).unwrap()).unwrap();
    python(ENCODE, &[folder.path().to_str().unwrap()]);
    let tensor = |path: &Path| npy::read(path).unwrap().tensor(&gradlet::cpu()).unwrap();
    assert_eq!(tensor(&path("own_png.npy")).bytes().unwrap(), x.bytes().unwrap());
    assert!(largest_difference(&tensor(&path("own_jpeg.npy")), &image::decode_jpeg(&own, 0).unwrap()).unwrap() <= 6);
    for (name, most) in [("accurate.npz", 6), ("default.npz", 20)] {
        let mut largest = 0;
        for (file, want) in npy::read_npz(&path(name)).unwrap() {
            let decoded = image::decode_image(&io::read_file(path(&file)).unwrap(), 0).unwrap();
            let difference = largest_difference(&decoded, &want.tensor(&gradlet::cpu()).unwrap()).unwrap();
            println!("{name} {file}: {difference}");
            largest = largest.max(difference);
        }
        assert!(largest <= most, "{name}: {largest}");
    }
}
