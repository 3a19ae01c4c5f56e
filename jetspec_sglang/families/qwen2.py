from sglang.srt.models.qwen2 import EntryClass as EntryClass
