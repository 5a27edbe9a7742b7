"""Eager and captured steps of transformers. Arguments: label."""
import json, statistics, sys, time, os
import torch, flashcliff
from flashcliff.nn.transformer import GATransformer
label = sys.argv[1]
torch.manual_seed(0)
dev = "cuda"
CASES = {
 "gatr_24_96_8_7x333": ((3,0,1), 24, 96, 8, 8, 7, 333, {}),
 "lgatr_20_80_8_7x333": ((1,3,0), 20, 80, 8, 8, 7, 333, {}),
 "lgatr_top_16_32_12_128x50": ((1,3,0), 16, 32, 12, 8, 128, 50, {"multi_query": True}),
 "gatr_16_128_4_64x16": ((3,0,1), 16, 128, 4, 8, 64, 16, {"multi_query": True}),
 "lgatr_16_32_12_512x50": ((1,3,0), 16, 32, 12, 8, 512, 50, {"multi_query": True}),
}
def med(f, n, warm=5):
    for _ in range(warm): f()
    torch.cuda.synchronize()
    ts = []
    for _ in range(n):
        t = time.perf_counter(); f(); torch.cuda.synchronize(); ts.append(time.perf_counter() - t)
    return statistics.median(ts) * 1e3
out = {}
only = sys.argv[2:] 
for name, (sig, c, s, blocks, heads, b, n, att) in CASES.items():
    if only and name not in only: continue
    A = flashcliff.Algebra(*sig)
    net = GATransformer(A, 1, 1, c, 1, 1, s, blocks=blocks, attention={"heads": heads, **att}, scalar_activation="gelu").to(dev)
    mv = torch.randn(A.blade_count, b, n, 1, device=dev); sc = torch.randn(b, n, 1, device=dev)
    def loss():
        o, os_ = net(mv, sc)
        return o.square().mean() + os_.square().mean()
    def step():
        net.zero_grad(set_to_none=True)
        loss().backward()
    res = {}
    # correctness beside f64 on the CPU for a small part
    import copy
    ref = copy.deepcopy(net).double().cpu()
    with torch.no_grad():
        ro, ros = ref(mv[:, :2].double().cpu(), sc[:2].double().cpu())
        o, os_ = net(mv[:, :2].contiguous(), sc[:2].contiguous())
        res["error"] = [float((o.cpu().double() - ro).abs().max() / ro.abs().max()), float((os_.cpu().double() - ros).abs().max() / ros.abs().max())]
    ml, msc = mv[:, :2].contiguous(), sc[:2].contiguous()
    def l2(net_, a, b_):
        o, os_ = net_(a, b_); return o.square().mean() + os_.square().mean()
    net.zero_grad(); l2(net, ml, msc).backward(); 
    l2(ref, ml.double().cpu(), msc.double().cpu()).backward()
    worst = 0
    for (k, p), q in zip(net.named_parameters(), ref.parameters()):
        if p.grad is None: continue
        worst = max(worst, float((p.grad.cpu().double() - q.grad).abs().max() / (q.grad.abs().max() + 1e-30)))
    res["grad_error"] = worst
    torch.cuda.reset_peak_memory_stats()
    try:
        res["eager_step"] = med(step, 15)
        res["peak_MiB"] = torch.cuda.max_memory_allocated() / 2**20
        with torch.no_grad():
            res["eager_inference"] = med(lambda: net(mv, sc), 15)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3): step()
        torch.cuda.current_stream().wait_stream(side)
        g = torch.cuda.CUDAGraph(); net.zero_grad(set_to_none=True)
        with torch.cuda.graph(g):
            loss().backward()
        res["captured_step"] = med(g.replay, 15)
        del g
    except Exception as e:
        res["failed"] = repr(e)[:300]
    out[name] = res
    print(label, name, json.dumps(res), flush=True)
json.dump(out, open(os.path.join(os.environ.get("OUT", "."), label + ".json"), "w"))
