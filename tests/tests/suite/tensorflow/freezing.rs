//! Frozen layers: counts of variables, summaries and optimizer state as in Keras.

use super::python;
use gradlet::layers::{
    BatchNormalization, Conv2D, Dense, Flatten, Functional, GlobalAveragePooling2D, Layer, Module, ReLU, Sequential, Size,
};
use gradlet::optimizers::{Adam, Optimizer};
use gradlet::{Eager, applications};
use serde_json::{Value, json};

const SCRIPT: &str = r#"
import json, keras, numpy as np
from keras import layers as L
def facts(model, dims):
    model.build((None, *dims))
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    parameters = lambda weights: sum(int(np.prod(w.shape)) for w in weights)
    lines = []
    model.summary(show_trainable=True, print_fn=lambda text, **_: lines.append(text))
    rows = [[cell.strip() for cell in line.split('│')[3:5]] for line in '\n'.join(lines).splitlines() if '│' in line]
    rows = [row[0].replace(',', '') + ' ' + row[1] for row in rows if row[1]]
    return dict(trainable=[len(model.trainable_variables), parameters(model.trainable_variables)],
        non_trainable=[len(model.non_trainable_variables), parameters(model.non_trainable_variables)],
        flag=model.trainable, slots=parameters(optimizer.variables), rows=rows)
def small(): return keras.Sequential([L.Conv2D(4, 3), L.BatchNormalization(), L.ReLU(), L.Flatten(), L.Dense(5), L.Dense(3)])
def nested():
    base = keras.applications.MobileNetV2((64, 64, 3), alpha=0.35, include_top=False, weights=None)
    return base, keras.Sequential([base, L.GlobalAveragePooling2D(), L.Dense(2)])
found = {}
model = small(); found['none'] = facts(model, (8, 8, 1))
model = small(); model.trainable = False; found['all'] = facts(model, (8, 8, 1))
model = small(); model.trainable = False; model.trainable = True; found['again'] = facts(model, (8, 8, 1))
model = small()
for layer in model.layers[:-1]: layer.trainable = False
found['head'] = facts(model, (8, 8, 1))
model = small(); model.layers[1].trainable = False; found['normalization'] = facts(model, (8, 8, 1))
base, model = nested(); found['base'] = facts(model, (64, 64, 3))
base, model = nested(); base.trainable = False; found['frozen base'] = facts(model, (64, 64, 3))
base, model = nested()
for layer in base.layers[:100]: layer.trainable = False
found['fine-tuned'] = facts(model, (64, 64, 3))
found['layers'] = [layer.name for layer in base.layers[1:]]
print(json.dumps(found))
"#;

fn facts(model: &dyn Layer, input: &[u32]) -> Value {
    let scope = Eager::new(&gradlet::cpu());
    let summary = model.summary(&scope, input).unwrap().show_trainable(true);
    let optimizer = Adam::new(0.001);
    optimizer.build(&scope, &model).unwrap();
    let rows = summary.layers.iter().filter(|layer| layer.depth == 0);
    let sign = |trainable: Option<bool>| trainable.map_or("-", |trainable| if trainable { "Y" } else { "N" });
    let text = summary.to_string();
    let cells = text.lines().filter(|line| line.contains('│')).map(|line| line.split('│').skip(3).take(2).collect::<Vec<_>>());
    let cells: Vec<String> = cells.map(|cells| format!("{} {}", cells[0].trim().replace(',', ""), cells[1].trim())).collect();
    let shown: Vec<String> = rows.map(|layer| format!("{} {}", layer.parameters.count, sign(layer.trainable))).collect();
    assert!(shown.iter().all(|row| cells.contains(row)), "{text}");
    json!({
        "trainable": [model.trainable_variables().len(), summary.trainable.count],
        "non_trainable": [model.non_trainable_variables().len(), summary.non_trainable.count],
        "flag": model.trainable(),
        "slots": Size::of(&optimizer.variables()).count,
        "rows": shown,
    })
}

fn small() -> Sequential {
    let model = Sequential::new().with(Conv2D::new(4, [3, 3])).with(BatchNormalization::default()).with(ReLU::default());
    model.with(Flatten).with(Dense::new(5)).with(Dense::new(3))
}

fn nested() -> (std::sync::Arc<Functional>, Sequential) {
    let base = applications::mobilenet_v2().input_shape([64, 64, 3]).alpha(0.35).include_top(false);
    let base = std::sync::Arc::new(base.build(&Eager::new(&gradlet::cpu())).unwrap());
    (base.clone(), Sequential::new().with(base).with(GlobalAveragePooling2D::default()).with(Dense::new(2)))
}

#[test]
#[ignore = "needs TensorFlow: `cargo xtask test TensorFlow` installs and runs it"]
fn counts_of_frozen_models_are_keras_s() {
    let small_with = |freeze: &dyn Fn(&Sequential)| {
        let model = small();
        freeze(&model);
        facts(&model, &[8, 8, 1])
    };
    let nested_with = |freeze: &dyn Fn(&Functional)| {
        let (base, model) = nested();
        freeze(&base);
        facts(&model, &[64, 64, 3])
    };
    let layers: Vec<String> = nested().0.layers().map(|(name, _)| name.to_string()).collect();
    let found = json!({
        "none": small_with(&|_| ()),
        "all": small_with(&|model| model.set_trainable(false)),
        "again": small_with(&|model| [false, true].into_iter().for_each(|trainable| model.set_trainable(trainable))),
        "head": small_with(&|model| model.layers().rev().skip(1).for_each(|(_, layer)| layer.set_trainable(false))),
        "normalization": small_with(&|model| model.layer("batch_normalization").unwrap().set_trainable(false)),
        "base": nested_with(&|_| ()),
        "frozen base": nested_with(&|base| base.set_trainable(false)),
        // Keras's list begins with the input layer.
        "fine-tuned": nested_with(&|base| base.layers().take(99).for_each(|(_, layer)| layer.set_trainable(false))),
        "layers": layers,
    });
    let wanted: Value = serde_json::from_str(python(SCRIPT, &[]).lines().last().unwrap()).unwrap();
    for (name, found) in found.as_object().unwrap() {
        assert_eq!(*found, wanted[name], "{name}");
    }
}
