"""The texts that tokenizers are compared on: chosen to be difficult, and random."""

import random
import sys
import unicodedata

PROSE = [
    "All human beings are born free and equal in dignity and rights. They're endowed with reason & conscience.",
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren; Straßenbahnhaltestellenäußerung!",
    "Tous les êtres humains naissent libres et égaux en dignité et en droits. L'œuvre d'été, c'est ça…",
    "Всички хора се раждат свободни и равни по достойнство и права.",
    "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.",
    "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心。",
    "すべての人間は、生れながらにして自由であり、カタカナとひらがな。ﾊﾝｶｸ",
    "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์",
    "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق، وقد وهبوا عقلًا وضميرًا؟",
    "כל בני אדם נולדו בני חורין ושווים בערכם ובזכויותיהם.",
    "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi.",
    "İstanbul'da ığdır IĞDIR ŞİŞLİ; Ünïcödé ﬁﬂ ligatures ﬅ ǅ ǈ ǲ ᾼ",
]

CODE = [
    "fn main() {\n    let x: u32 = 0xFF_u32;\n\tprintln!(\"{x:>08}\\n\");\n}\n",
    "for (int i=0;i<10;++i){a[i]+=b[i]*c[i];}//done\r\n#include <stdio.h>\r\n",
    "def f(self, *args, **kw):\n        return [x for x in args if x is not None]\n\n\n    # end\n",
    "SELECT * FROM t WHERE a='it''s' AND b>=3.14e-10; -- http://example.com/a/b?c=d&e=f#g",
    "<html><body class=\"x\">&nbsp;</body></html>",
    "parseHTTPResponse2XMLDocument snake_case_name kebab-case-name CONST_NAME iOSApp eBay McDonald's I'M I'LL i'Ve",
    "x = $100,000.00 + 5% ~ 3^2 | 7 & !y `backtick` @user #tag \\escape //// ==== ---- ....",
]

TRICKY = [
    "",
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\n\n",
    "\n\n\n",
    "\r\n",
    "\r\n\r\n",
    " \n",
    "\n ",
    "a \n b",
    "a  \n  b",
    " a",
    "a ",
    "  a  ",
    "a\u00a0b",
    "\u3000a\u3000\u3000b",
    "a\u2028b\u2029c\u0085d",
    "a\u200bb\u200d\ufeffc\u00add",
    "\u0000",
    "a\u0000b\u0001\u001f\u007f\u0080\u009f",
    "\u0301",
    "e\u0301 \u0301e \u0301\u0302",
    "Å\u212b\u2126 \u1e9b\u0323 \uac00\u11a8 q\u0307\u0323",
    "'s 't 're 've 'm 'll 'd 'S 'T 'RE 'Ve 'M 'lL 'D 'x ''s 's's '",
    "it's IT'S it\u2019s we'RE 'ſ x'ſy '\u212a",
    "1 12 123 1234 12345 123456 1234567 1a2b3c 3.14 1,000 ½ ² ³ ₁ Ⅷ ① ٣٤٥ ३४ 一二 10\u00a0000",
    "🦙 🚀🚀 👨‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪🇫🇷 ✅ ❤️ #️⃣ 🫠",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𠜎𠜱𠝹 𐐀𐐨 𒀀 🀄",
    "a" * 100,
    "ab" * 100,
    "=" * 90,
    " " * 70,
    " " * 40 + "x",
    "\n" * 40,
    "\t" * 20 + "x",
    "0" * 50,
    "a " * 60,
    ". . . ... .. …… !!! ?! ?? --- — – ‘’ “” «» 「」 （） 、。",
    "漢字かなカナ漢ABC字abcDEF",
    "ABCdefGHIjklMNOpqr ÀÉîõÜ ǅabc ʰʱ ªº ⓐⒶ",
    "a/b/c\n/d //\n/",
    "word\u2581word \u2581\u2581 \u2581",
    "<s> </s> <unk> <0x41> <|endoftext|> <|im_start|>user<|im_end|> <bos><eos> <end_of_turn> [INST]",
    "Ġ Ċ ĠĠ â Ã©",
    "\ufffd \ufdfa \u200f\u202e \ue000 \U000f0000",
    "\u0e01\u0e33 \u0e33 \u0ca0_\u0ca0 \u0b95\u0bcd\u0bb7",
]


def chosen():
    """The fixed texts, each line of prose also joined to its neighbours."""
    return TRICKY + PROSE + CODE + [" ".join(PROSE), "\n\n".join(CODE), "".join(TRICKY[:30])]


# Of a character's properties, those that tokenizers ask for changed for some characters between versions of Unicode.
# Characters of Unicode 3.2 that kept their category are the same to all.
def _stable(code):
    c = chr(code)
    old = unicodedata.ucd_3_2_0.category(c)
    return old not in ("Cn", "Cs") and old == unicodedata.category(c)


_STABLE = [chr(code) for code in range(sys.maxunicode + 1) if _stable(code)]
_NOT_PRIVATE = [c for c in _STABLE if unicodedata.category(c) != "Co"]
_CATEGORIES = {}
for _c in _NOT_PRIVATE:
    _CATEGORIES.setdefault(unicodedata.category(_c), []).append(_c)
_PIECES = (
    list(" \t\n\r\u00a0\u3000'.,;!?/-_`~$^|<>=+*#@()[]{}\"\\0123456789abcdefstmdrelvzABCDEFSTMDRELVZéÉßſñ漢字かなカ가å")
    + ["  ", "    ", "\r\n", "\n\n", "'s", "'ll", "'RE", "the", " the", "ing", "://", "🦙", "👍🏽", "\u0301", "\u200d"]
)


def random_text(rng):
    """One random text: of one of four kinds, from 1 to 60 pieces."""
    n = rng.randint(1, 60)
    kind = rng.randrange(4)
    if kind == 0:
        return "".join(rng.choice(_NOT_PRIVATE) for _ in range(n))
    if kind == 1:
        return "".join(rng.choice(_PIECES) for _ in range(n))
    if kind == 2:
        categories = list(_CATEGORIES)
        return "".join(rng.choice(_CATEGORIES[rng.choice(categories)]) for _ in range(n))
    text = rng.choice(PROSE + CODE)
    start = rng.randrange(len(text))
    return text[start : start + n] + rng.choice(_PIECES) + rng.choice(TRICKY)


def random_texts(seed, n):
    """n random texts, the same for the same seed."""
    rng = random.Random(seed)
    return [random_text(rng) for _ in range(n)]
