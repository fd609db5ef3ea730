"""PyTorch's version of std-host/examples/bench_cuda.rs: eager, or by torch.compile with CUDA graphs."""

import argparse
import sys

import measure

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError:
    sys.exit(print("not installed"))

parser = argparse.ArgumentParser()
parser.add_argument("--mode", choices=["eager", "compiled"], default="eager")
parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
OPTIONS = parser.parse_args()
DEVICE = OPTIONS.device
COMPILED = OPTIONS.mode == "compiled"
CLASSES = 10
DTYPES = {"f32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def wait(_):
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def random(*dims):
    return torch.rand(*dims, device=DEVICE) * 2 - 1


def pictures(batch, side, channels):
    return random(batch, channels, side, side).to(memory_format=torch.channels_last)


def scale_and_offset(count):
    return random(count), random(count)


def gemm(dtype, side):
    a, b = random(side, side).to(dtype), random(side, side).to(dtype)
    return lambda: torch.matmul(a, b)


def copy(_, *dims):
    x, y = random(*dims), random(*dims)
    return lambda: y.copy_(x)


def on_input(function):
    """Returns the work of a function of one input."""

    def work(_, *dims):
        x = random(*dims)
        return lambda: function(x)

    return work


def layer_norm(_, rows, columns):
    x, (scale, offset) = random(rows, columns), scale_and_offset(columns)
    return lambda: F.layer_norm(x, (columns,), scale, offset, 1e-3)


def batch_norm(_, batch, height, width, channels):
    x = random(batch, channels, height, width).to(memory_format=torch.channels_last)
    scale, offset = scale_and_offset(channels)
    return lambda: F.batch_norm(x, None, None, scale, offset, training=True, eps=1e-3)


def max_pool(_, batch, height, width, channels):
    x = random(batch, channels, height, width).to(memory_format=torch.channels_last)
    return lambda: F.max_pool2d(x, 2)


KERNELS = {
    "gemm": gemm,
    "copy": copy,
    "chain": on_input(lambda x: (x * 1.5 + 0.5).relu().sqrt().neg()),
    "sum_all": on_input(torch.sum),
    "sum_rows": on_input(lambda x: x.sum(1)),
    "sum_columns": on_input(lambda x: x.sum(0)),
    "softmax": on_input(lambda x: x.softmax(-1)),
    "layer_norm": layer_norm,
    "batch_norm": batch_norm,
    "max_pool": max_pool,
}


def adam(parameters):
    return torch.optim.Adam(parameters, lr=1e-3, eps=1e-7, fused=DEVICE == "cuda")


def update(variables, rows, columns):
    parameters = [nn.Parameter(random(rows, columns)) for _ in range(variables)]
    for parameter in parameters:
        parameter.grad = random(rows, columns)
    return adam(parameters).step


def launch(short, long):
    """Returns the time that each node adds to a CUDA graph of cumulative sums."""

    def chain(nodes):
        x = random(4)
        for _ in range(3):
            x.cumsum(0)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x
            for _ in range(nodes):
                y = y.cumsum(0)
        return graph

    few, many = chain(short), chain(long)
    return lambda: (measure.milliseconds(many.replay, wait) - measure.milliseconds(few.replay, wait)) / (long - short)


def cnn(filters, units):
    first = [nn.Conv2d(1, filters, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(filters, 2 * filters, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*first, *second, nn.Linear(2 * filters * 49, units), nn.ReLU(), nn.Linear(units, CLASSES))


class Residual(nn.Module):
    def __init__(self, inputs, filters, stride):
        super().__init__()
        first = [nn.Conv2d(inputs, filters, 3, stride, 1), nn.BatchNorm2d(filters, 1e-3), nn.ReLU()]
        self.main = nn.Sequential(*first, nn.Conv2d(filters, filters, 3, 1, 1), nn.BatchNorm2d(filters, 1e-3))
        self.shortcut = nn.Conv2d(inputs, filters, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x):
        return F.relu(self.main(x) + self.shortcut(x))


def resnet8(side, percent, classes):
    widths = [16 * percent // 100, 32 * percent // 100, 64 * percent // 100]
    first = [nn.Conv2d(3, widths[0], 3, 1, 1), nn.BatchNorm2d(widths[0], 1e-3), nn.ReLU()]
    blocks = [Residual(widths[0], widths[0], 1), Residual(widths[0], widths[1], 2), Residual(widths[1], widths[2], 2)]
    return nn.Sequential(*first, *blocks, nn.AvgPool2d(side // 4), nn.Flatten(), nn.Linear(widths[2], classes))


def normalized(inputs, filters, size, stride=1, groups=1, activation=True):
    convolution = nn.Conv2d(inputs, filters, size, stride, size // 2, groups=groups, bias=False)
    return [convolution, nn.BatchNorm2d(filters, 1e-3)] + ([nn.ReLU6()] if activation else [])


class Inverted(nn.Module):
    def __init__(self, inputs, filters, stride, expansion):
        super().__init__()
        wide = inputs * expansion
        expand = normalized(inputs, wide, 1) if expansion > 1 else []
        project = normalized(wide, filters, 1, activation=False)
        self.main = nn.Sequential(*expand, *normalized(wide, wide, 3, stride, wide), *project)
        self.has_shortcut = stride == 1 and inputs == filters

    def forward(self, x):
        return x + self.main(x) if self.has_shortcut else self.main(x)


BLOCKS = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]


def divisible(width):
    rounded = max(8, int(width + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * width else rounded


def mobilenet_v2(percent, classes):
    width = divisible(32 * percent / 100)
    layers = normalized(3, width, 3, 2)
    for expansion, filters, count, stride in BLOCKS:
        filters = divisible(filters * percent / 100)
        for index in range(count):
            layers.append(Inverted(width, filters, stride if index == 0 else 1, expansion))
            width = filters
    last = max(1280, divisible(1280 * percent / 100)) if percent > 100 else 1280
    return nn.Sequential(*layers, *normalized(width, last, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, classes))


class Recurrent(nn.Module):
    def __init__(self, features, units):
        super().__init__()
        self.lstm, self.head = nn.LSTM(features, units, batch_first=True), nn.Linear(units, CLASSES)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


class Transformer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width, 1e-3), nn.LayerNorm(width, 1e-3)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        normal = self.first(x)
        x = x + self.attention(normal, normal, normal, need_weights=False)[0]
        return self.head((x + self.mlp(self.second(x))).mean(1))


def mlp(features, units):
    return nn.Sequential(nn.Linear(features, units), nn.ReLU(), nn.Linear(units, CLASSES))


def subject(name, batch, *sizes):
    """Returns a model, a batch for it, and the number of its classes, or None."""
    if name == "cnn":
        return cnn(*sizes), pictures(batch, 28, 1), CLASSES
    if name == "resnet8":
        return resnet8(*sizes), pictures(batch, sizes[0], 3), sizes[2]
    if name == "mobilenet_v2":
        return mobilenet_v2(*sizes[1:]), pictures(batch, sizes[0], 3), sizes[2]
    if name == "lstm":
        return Recurrent(*sizes[1:]), random(batch, *sizes[:2]), CLASSES
    if name == "transformer":
        return Transformer(*sizes[1:]), random(batch, *sizes[:2]), CLASSES
    return (mlp(*sizes), random(batch, sizes[0]), CLASSES) if name == "batch_to_loss" else None


def training(model, precision):
    """Returns a training step, a function of a batch."""
    optimizer = adam(model.parameters())

    def loss_of(x, y):
        with torch.autocast(DEVICE, torch.bfloat16, enabled=precision == "bf16"):
            logits = model(x)
        return F.cross_entropy(logits.float(), y)

    loss_of = torch.compile(loss_of, mode="reduce-overhead") if COMPILED else loss_of

    def step(x, y):
        if COMPILED:
            torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def on_host(tensor):
    return tensor.cpu().pin_memory() if DEVICE == "cuda" else tensor.cpu()


def inference(model, x):
    model.eval()
    infer = torch.compile(model, mode="reduce-overhead") if COMPILED else model
    x = on_host(x)

    def call():
        with torch.inference_mode():
            return infer(x.to(DEVICE, non_blocking=True)).cpu()

    return call


def model_step(work, precision, sizes):
    name = work.removesuffix("_infer")
    found = subject(name, *sizes)
    if found is None:
        return None
    model, x, classes = found
    model = model.to(DEVICE, memory_format=torch.channels_last)
    if name != work:
        return measure.once(inference(model, x), wait)
    y, step = torch.arange(len(x), device=DEVICE) % classes, training(model, precision)
    if work != "batch_to_loss":
        return measure.once(lambda: step(x, y), wait)
    x, y = on_host(x), on_host(y)
    return measure.once(lambda: step(x.to(DEVICE, non_blocking=True), y.to(DEVICE, non_blocking=True)).item(), wait)


def make(work, precision, sizes):
    torch.compiler.reset()
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    if DEVICE == "cuda":
        torch.cuda.empty_cache()
    if work in KERNELS:
        call = KERNELS[work](DTYPES[precision], *sizes)
        return measure.repeated(torch.compile(call) if COMPILED and work != "copy" else call, wait)
    if work == "adam":
        return measure.repeated(update(*sizes), wait)
    if work == "launch":
        return None if COMPILED or DEVICE == "cpu" else launch(*sizes)
    return model_step(work, precision, sizes)


def main():
    if DEVICE == "cuda" and not torch.cuda.is_available():
        sys.exit(print("no GPU"))
    torch.backends.cudnn.benchmark = True
    measure.serve(f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}", make)


main()
