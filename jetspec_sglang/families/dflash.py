from sglang.srt.models.dflash import EntryClass as EntryClass
