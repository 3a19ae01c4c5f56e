from sglang.srt.models.qwen3 import EntryClass as EntryClass
