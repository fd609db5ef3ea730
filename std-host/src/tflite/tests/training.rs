//! A model that TensorFlow converted for training on a device: its signatures share variables.

use super::*;
use gradlet_core::Variable;
use safetensors::SafeTensors;

#[test]
fn training_signatures_have_tensorflows_losses() {
    let file = std::fs::read(sample("saved_trainer.safetensors")).unwrap();
    let arrays = SafeTensors::deserialize(&file).unwrap();
    let array = |name: &str| {
        let view = arrays.tensor(name).unwrap();
        let dims: Vec<u32> = view.shape().iter().map(|&dim| dim as u32).collect();
        new(&bytemuck::pod_collect_to_vec::<u8, f32>(view.data()), &dims)
    };
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(sample("saved_trainer.json")).unwrap()).unwrap();
    let losses: Vec<f32> = json["ondevice"]["losses"].as_array().unwrap().iter().map(|loss| loss.as_f64().unwrap() as f32).collect();
    let close = |got: &Tensor, want: &Tensor| {
        assert_eq!(got.dims(), want.dims());
        for (got, want) in got.to_vec::<f32>().unwrap().iter().zip(want.to_vec::<f32>().unwrap()) {
            assert!((got - want).abs() < 1e-5, "{got} instead of {want}");
        }
    };
    for compiled in [false, true] {
        let model = Model::open(sample("trainer_ondevice.tflite")).unwrap();
        let scope = Eager::new(&portable_cpu());
        let (train, infer) = (model.signature_function("train").unwrap(), model.signature_function("infer").unwrap());
        let infers = |name: &str| close(&infer.call(&scope, vec![array("infer/x")]).unwrap()[1], &array(name));
        infers("infer/before");
        for (step, &want) in losses.iter().enumerate() {
            let (x, y) = (array(&format!("step{step}/x")), array(&format!("step{step}/y")));
            let loss = match compiled {
                true => train.call(&scope, vec![x, y]).unwrap().remove(0),
                false => model.call_signature(&scope, "train", &[("y", &y), ("x", &x)]).unwrap().remove(0).1,
            };
            assert!((loss.item::<f32>().unwrap() - want).abs() < 1e-5, "step {step}: {loss:?} instead of {want}");
            let value = |name: &str| {
                let variables: Vec<Variable> = model.variables();
                let variable = variables.iter().find(|variable| variable.name() == name).unwrap();
                gradlet_core::Scope::read(&scope, variable).unwrap()
            };
            close(&value("w"), &array(&format!("step{step}/w")));
            close(&value("b"), &array(&format!("step{step}/b")));
        }
        infers("infer/after");
        let refused = model.signature_function("save").err().unwrap().to_string();
        assert!(refused.contains("FlexSave"), "{refused}");
    }
}
