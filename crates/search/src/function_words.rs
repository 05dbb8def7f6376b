//! Function words: frequent words that say little about a text's topic.
//!
//! A question has many function words and a note has few, so in a small store they
//! can be rarer than the topic words of the query. They get a low weight.

use crate::analyse::UnspacedScript;
use crate::stems::Language;

/// The language of a function word; `None` if the term is a function word of
/// neither language, or of both.
pub(crate) fn language_of(term: &str) -> Option<Language> {
    match (ENGLISH.contains(&term), INDONESIAN.contains(&term)) {
        (true, false) => Some(Language::English),
        (false, true) => Some(Language::Indonesian),
        _ => None,
    }
}

/// Whether a term of a script with spaces is a function word.
pub(crate) fn is_function_word(term: &str) -> bool {
    ENGLISH.contains(&term) || INDONESIAN.contains(&term)
}

/// Marks the characters of a run of one script that belong to function words.
pub(crate) fn mask(script: UnspacedScript, run: &[char]) -> Vec<bool> {
    let mut masked = vec![false; run.len()];
    let words: &[&str] = match script {
        UnspacedScript::Han => HAN,
        UnspacedScript::Hiragana => HIRAGANA,
        UnspacedScript::Hangul => HANGUL,
        UnspacedScript::Katakana | UnspacedScript::Other => &[],
    };
    for word in words {
        let length = word.chars().count();
        for start in 0..(run.len() + 1).saturating_sub(length) {
            if word.chars().eq(run[start..start + length].iter().copied()) {
                masked[start..start + length].fill(true);
            }
        }
    }
    if script == UnspacedScript::Hangul {
        mask_ending(run, &mut masked);
    }
    masked
}

/// Marks the longest ending that leaves at least one syllable.
fn mask_ending(run: &[char], masked: &mut [bool]) {
    let length = HANGUL_ENDINGS
        .iter()
        .map(|ending| (ending.chars().count(), ending))
        .filter(|(length, _)| *length < run.len())
        .filter(|(length, ending)| ending.chars().eq(run[run.len() - length..].iter().copied()))
        .map(|(length, _)| length)
        .max()
        .unwrap_or_default();
    masked[run.len() - length..].fill(true);
}

#[rustfmt::skip]
const ENGLISH: &[&str] = &[
    "a", "about", "after", "again", "all", "also", "am", "an", "and", "any", "are", "arent", "as", "at", "be",
    "because", "been", "before", "being", "but", "by", "can", "cannot", "cant", "could", "couldnt", "did", "didnt",
    "do", "does", "doesnt", "doing", "done", "dont", "during", "each", "either", "else", "ever", "for", "from", "had",
    "hadnt", "has", "hasnt", "have", "havent", "having", "he", "her", "hers", "herself", "him", "himself", "his", "how",
    "i", "if", "in", "into", "is", "isnt", "it", "its", "itself", "just", "may", "me", "might", "mine", "must", "my",
    "myself", "of", "off", "on", "onto", "or", "our", "ours", "ourselves", "out", "over", "please", "shall", "she",
    "should", "shouldnt", "so", "some", "such", "than", "that", "the", "their", "theirs", "them", "themselves", "then",
    "there", "these", "they", "this", "those", "to", "too", "under", "until", "up", "upon", "us", "very", "was",
    "wasnt", "we", "were", "werent", "what", "whatever", "when", "where", "whether", "which", "while", "who", "whom",
    "whose", "why", "will", "with", "within", "without", "wont", "would", "wouldnt", "you", "your", "yours",
    "yourself", "yourselves",
];

#[rustfmt::skip]
const INDONESIAN: &[&str] = &[
    "ada", "adakah", "adalah", "agar", "akan", "aku", "anda", "antara", "apa", "apakah", "apabila", "atas", "atau",
    "bagaimana", "bagaimanakah", "bagi", "bahwa", "beberapa", "belum", "berapa", "berapakah", "bila", "bisa",
    "bisakah", "boleh", "bukan", "bukankah", "dalam", "dan", "dapat", "dapatkah", "dari", "darimana", "daripada",
    "demi", "dengan", "di", "dia", "dimana", "dong", "dulu", "guna", "hanya", "harus", "haruskah", "hingga", "ia",
    "ialah", "ini", "itu", "itulah", "jadi", "jika", "juga", "kah", "kalau", "kalian", "kami", "kamu", "kapan",
    "kapankah", "karena", "ke", "kemana", "kenapa", "kepada", "ketika", "kita", "kok", "lagi", "lah", "lalu", "maka",
    "mana", "manakah", "masih", "mengapa", "mereka", "milik", "nya", "oleh", "pada", "para", "pernah", "pun", "saat",
    "saja", "sampai", "sana", "sang", "saya", "sebagai", "sebelum", "sedang", "sehingga", "sejak", "selama",
    "semua", "seperti", "serta", "sesudah", "setelah", "siapa", "siapakah", "sih", "sini", "situ", "sudah", "supaya",
    "tanpa", "tapi", "telah", "tentang", "terhadap", "tersebut", "tetapi", "tidak", "tidakkah", "untuk", "yaitu",
    "yakni", "yang",
];

/// Traditional and simplified Chinese, and Japanese.
#[rustfmt::skip]
const HAN: &[&str] = &[
    "什么", "什麼", "甚麼", "怎么", "怎麼", "怎样", "怎樣", "如何", "为什么", "為什麼", "为何", "為何", "哪里", "哪裡",
    "哪裏", "哪个", "哪個", "哪些", "哪位", "哪", "谁", "誰", "多少", "几个", "幾個", "多久", "何时", "何時", "时候",
    "時候", "是否", "有没有", "有沒有", "可以", "应该", "應該", "需要", "我们", "我們", "你们", "你們", "他们", "他們",
    "她们", "她們", "咱们", "咱們", "这个", "這個", "那个", "那個", "这些", "這些", "那些", "这里", "這裡", "那里",
    "那裡", "因为", "因為", "所以", "但是", "如果", "以及", "或者", "还是", "還是", "关于", "關於", "的", "了", "吗",
    "嗎", "呢", "吧", "啊", "是", "在", "和", "与", "與", "我", "你", "您", "他", "她", "它", "这", "這", "那", "也",
    "都", "就", "被", "把", "何",
];

#[rustfmt::skip]
const HIRAGANA: &[&str] = &[
    "ですか", "ますか", "でしょうか", "ました", "ましたか", "ません", "です", "ます", "でした", "だった", "どこ", "いつ",
    "なに", "なん", "だれ", "どれ", "どの", "どう", "どうやって", "どうすれば", "どのように", "どんな", "なぜ", "どちら",
    "いくつ", "いくら", "して", "した", "する", "され", "されて", "された", "している", "していた", "すれば", "いる", "いた",
    "ある", "あった", "なる", "なった", "こと", "もの", "とき", "ため", "よう", "から", "まで", "より", "には", "では",
    "とは", "への", "での", "この", "その", "あの", "これ", "それ", "という", "について", "は", "が", "を", "に", "で",
    "と", "の", "も", "へ", "か", "や",
];

#[rustfmt::skip]
const HANGUL: &[&str] = &[
    "무엇", "무슨", "뭐", "뭘", "어떻게", "어떤", "어느", "언제", "어디", "누구", "누가", "왜", "얼마나", "얼마", "몇",
    "우리", "저희", "그리고", "하지만", "그런데", "때문",
];

/// Particles and verb endings.
#[rustfmt::skip]
const HANGUL_ENDINGS: &[&str] = &[
    "은", "는", "이", "가", "을", "를", "에", "의", "도", "만", "로", "와", "과", "나", "요", "들", "에서", "에서는", "에게",
    "에게서", "에는", "에도", "으로", "으로는", "로는", "부터", "까지", "처럼", "보다", "마다", "밖에", "이나", "이란",
    "라는", "이라는", "라고", "이라고", "이고", "이며", "들이", "들은", "들을", "들의", "들에게", "께서", "한테", "하고",
    "하는", "하면", "하기", "하게", "하며", "하여", "해서", "해야", "했던", "했다", "한다", "할", "한", "함", "하지",
    "되는", "되면", "되었", "된", "됐다", "된다", "될", "하나요", "했나요", "되나요", "됐나요", "되었나요", "인가요",
    "인지", "는지", "은지", "는가", "나요", "까요", "가요", "어요", "아요", "해요", "예요", "이에요", "죠", "지요",
    "습니까", "합니까", "했습니까", "됩니까", "입니까", "습니다", "합니다", "했습니다", "됩니다", "입니다",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(script: UnspacedScript, run: &str) -> String {
        let letters: Vec<char> = run.chars().collect();
        let mask = mask(script, &letters);
        letters.iter().zip(mask).map(|(letter, is_masked)| if is_masked { '_' } else { *letter }).collect()
    }

    #[test]
    fn function_words_of_questions_are_masked() {
        assert_eq!(masked(UnspacedScript::Han, "我们如何部署服务"), "____部署服务");
        assert_eq!(masked(UnspacedScript::Hangul, "서버를"), "서버_");
        assert_eq!(masked(UnspacedScript::Hangul, "배포했나요"), "배포___");
        assert_eq!(masked(UnspacedScript::Hangul, "이"), "이");
        assert_eq!(masked(UnspacedScript::Katakana, "サーバー"), "サーバー");
    }
}
