"""Trains a small GPT-2 of transformers with PyTorch and prints its losses, bit by bit: for run_programs.py. Knows nothing of
deepum. usage: train.py [--precision fp32|bf16] [--compile] [--steps N]"""
import argparse
import json
import os
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch
from transformers import GPT2Config, GPT2LMHeadModel

parser = argparse.ArgumentParser()
parser.add_argument("--compile", action="store_true")
parser.add_argument("--precision", choices=["fp32", "bf16"], default="bf16", help="bf16 is autocast")
parser.add_argument("--steps", type=int, default=16)
parser.add_argument("--layers", type=int, default=8)
parser.add_argument("--width", type=int, default=1024)
parser.add_argument("--batch", type=int, default=2)
options = parser.parse_args()

torch.manual_seed(1)
torch.use_deterministic_algorithms(True)
torch.utils.deterministic.fill_uninitialized_memory = False  # as in trainings that do not ask for determinism
model = GPT2LMHeadModel(GPT2Config(n_layer=options.layers, n_embd=options.width, n_head=16, vocab_size=8192, n_positions=512)).cuda()
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
forward = torch.compile(model) if options.compile else model
tokens = torch.randint(0, 8192, (options.batch, 512), device="cuda")
losses, times = [], []
for _ in range(options.steps):
    torch.cuda.synchronize()
    began = time.perf_counter()
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=options.precision == "bf16"):
        loss = forward(tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    times.append(round((time.perf_counter() - began) * 1e3, 2))
    losses.append(loss.item().hex())
free, total = torch.cuda.mem_get_info()
try:
    reserved = torch.cuda.max_memory_reserved() >> 20
except RuntimeError:  # allocators that are plugged in keep no such count
    reserved = None
print(json.dumps({"losses": losses, "ms": times, "reserved_mib": reserved, "free_mib": free >> 20, "total_mib": total >> 20}))
