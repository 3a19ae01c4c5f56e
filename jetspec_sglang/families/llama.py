from sglang.srt.models.llama import EntryClass as EntryClass
