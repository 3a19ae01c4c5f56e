"""Prompts are told apart in every script, and copies of one prompt are recognised."""

import pytest

from jetspec_sglang.training.prompts import HeldOut, count_words, normal_form

SCRIPTS = {
    "latin": ("Où est la gare ?", "OÙ EST LA GARE", "Où est la plage ?"),
    "german": ("Wie groß ist der Fuß?", "WIE GROSS IST DER FUSS", "Wie groß ist der Fluss?"),
    "cyrillic": ("Сколько стоит хлеб?", "сколько СТОИТ хлеб", "Сколько стоит сыр?"),
    "greek": ("Πού είναι ο Οδυσσέας;", "ΠΟΎ ΕΊΝΑΙ Ο ΟΔΥΣΣΈΑΣ", "Πού είναι η Αθήνα;"),
    "arabic": ("كم عدد الكتب؟", "كم عدد الكتب", "كم عدد الأقلام؟"),
    "persian": ("کتاب\u200cها کجا هستند؟", "کتابها کجا هستند", "خانه\u200cها کجا هستند؟"),
    "hebrew": ("כמה ספרים יש?", "כמה ספרים יש", "כמה עטים יש?"),
    "devanagari": ("भारत की राजधानी क्या है?", "भारत की राजधानी क्या है", "नेपाल की राजधानी क्या है?"),
    "han": ("中国的首都是哪里？", "中国的首都是哪里", "法国的首都是哪里？"),
    "han with spaces": ("你好，世界和平！", "你好 世界和平", "你好，明天再见！"),
    "kana": ("ﾄｳｷｮｳはどこですか？", "トウキョウはどこですか", "オオサカはどこですか？"),
    "hangul": ("서울은 어디에 있습니까?", "서울은 어디에 있습니까", "부산은 어디에 있습니까?"),
    "thai": ("กรุงเทพอยู่ที่ไหน?", "กรุงเทพอยู่ที่ไหน", "เชียงใหม่อยู่ที่ไหน?"),
    "digits": ("What is ١٢ + 3?", "what is ١٢ 3", "What is ١٣ + 3?"),
    "full width": ("Ｗｈａｔ　ｉｓ　ｉｔ？", "what is it", "What is that?"),
    "no letters": ("😀😀", " 😀😀 ", "🙁"),
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_copies_are_held_out_and_other_prompts_are_not(script):
    prompt, copy, other = SCRIPTS[script]
    held_out = HeldOut([prompt])
    assert copy in held_out
    assert other not in held_out


def test_one_prompt_excludes_no_other_script():
    prompts = [prompt for prompt, _, _ in SCRIPTS.values()]
    assert len(HeldOut(prompts)) == len(prompts)


@pytest.mark.parametrize(
    ("text", "form"),
    [("Hello,  World_2!", "hello world 2"), ("it's 3.5", "it s 3 5"), ("", "")],
)
def test_ascii_keeps_its_form(text, form):
    assert normal_form(text) == form


def test_accents_and_vowel_signs_tell_words_apart():
    assert normal_form("cafe\u0301") == normal_form("café") != normal_form("cafe")
    assert normal_form("कि") != normal_form("की")


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("One two three", 3),
        ("Hi there", 2),
        ("你好", 1),
        ("今天天气怎么样", 3),
        ("กรุงเทพอยู่ที่ไหน", 8),
        ("東京はどこですか", 4),
        ("서울은 어디에 있습니까", 3),
        ("", 0),
    ],
)
def test_words_are_counted_where_no_spaces_are_written(message, words):
    assert count_words(message) == words
