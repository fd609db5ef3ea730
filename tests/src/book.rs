//! The programs of the handbook and of the other pages. Each one is a documentation test.

macro_rules! pages {
    ($($name:ident: $path:literal),* $(,)?) => {
        $(
            #[doc = include_str!(concat!("../../", $path))]
            pub struct $name;
        )*
    };
}

pages! {
    Introduction: "book/src/introduction.md",
    TenMinutes: "book/src/ten-minutes.md",
    Keras: "book/src/keras.md",
    Tflm: "book/src/tflm.md",
    Functions: "book/src/functions.md",
    Data: "book/src/data.md",
    FineTuning: "book/src/fine-tuning.md",
    MixedPrecision: "book/src/mixed_precision.md",
    Devices: "book/src/devices.md",
    Gpu: "book/src/gpu.md",
    Serving: "book/src/serving.md",
    Checkpoints: "book/src/checkpoints.md",
    Tensorboard: "book/src/tensorboard.md",
    Board: "book/src/board.md",
    Inside: "book/src/inside.md",
}
