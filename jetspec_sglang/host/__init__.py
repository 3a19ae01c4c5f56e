"""The host platform: stock SGLang on any CPU with AVX2.

Contract: SGLang asks `activation.activate` whether to use it, then talks to
`platform.HostPlatform`. Attention, linears, fused layers and the KV pool run on `kernels`.
"""
