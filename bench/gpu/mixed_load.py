#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mixed work on one card in named phases, for recording telemetry (needs PyTorch and torchvision):

    hone record -o run.hrec.gz --hz 10 --source nvml+host -- python3 bench/gpu/mixed_load.py [SCALE]

SCALE 1 takes about six minutes. Each phase is announced on the descriptor in HONE_PHASE_FD; its
number of units (images, products, copies) is printed at its end.
"""
import os, sys, time
import torch, torchvision

scale = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
fd = os.environ.get("HONE_PHASE_FD")
dev = "cuda"
torch.backends.cudnn.benchmark = True


def phase(name, seconds, step, units):
    if fd:
        os.write(int(fd), (name + "\n").encode())
    end, count = time.time() + seconds * scale, 0
    while time.time() < end:
        for _ in range(4):
            step()
            count += units
        torch.cuda.synchronize()
    print(f"{name} {count} units in {seconds * scale:.1f} s", flush=True)


def idle(seconds):
    phase("idle", seconds, lambda: time.sleep(0.05), 0)


net = torchvision.models.resnet50().to(dev, memory_format=torch.channels_last)
opt = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
x = torch.randn(128, 3, 224, 224, device=dev).contiguous(memory_format=torch.channels_last)
y = torch.randint(0, 1000, (128,), device=dev)
one = x[:1].clone()


def train(data=None):
    with torch.autocast(dev, torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(net(x if data is None else data), y)
    loss.backward()
    opt.step()
    opt.zero_grad(set_to_none=True)


def starved():  # the host prepares a batch while the card waits
    t = time.time()
    while time.time() - t < 0.15:
        sum(i * i for i in range(2000))
    train()


def infer(batch):
    with torch.no_grad(), torch.autocast(dev, torch.float16):
        net(batch)


a = torch.randn(8192, 8192, device=dev, dtype=torch.bfloat16)
b = torch.randn(8192, 8192, device=dev, dtype=torch.bfloat16)
c = torch.empty_like(a)
host = torch.empty(256 << 20, dtype=torch.uint8).pin_memory()
card = torch.empty(256 << 20, dtype=torch.uint8, device=dev)
big, big2 = torch.randn(1 << 29, device=dev), torch.empty(1 << 29, device=dev)
w = torch.randn(16384, 16384, device=dev, dtype=torch.bfloat16)
v = torch.randn(16384, 1, device=dev, dtype=torch.bfloat16)
small = torch.randn(64, 64, device=dev)

idle(12)
phase("matmul", 35, lambda: torch.matmul(a, b, out=c), 1)
idle(6)
net.train()
phase("train", 50, train, 128)
net.eval()
phase("validate", 15, lambda: infer(x), 128)
phase("launch-bound", 35, lambda: [small.add_(0.0) for _ in range(50)], 50)
phase("infer-batch-1", 25, lambda: infer(one), 1)
net.train()
phase("input-starved", 40, starved, 128)
idle(6)
phase("copy-bound", 35, lambda: (card.copy_(host, non_blocking=True), host.copy_(card, non_blocking=True)), 2)
phase("bandwidth-bound", 35, lambda: torch.add(big, 1.0, out=big2), 1)
phase("decode", 30, lambda: torch.matmul(w, v), 1)
phase("train", 30, train, 128)
idle(12)
