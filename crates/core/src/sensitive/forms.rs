//! Secrets of one line that contain a known literal, and their patterns.

use Start::{Before, Label, Word};

use super::checks::{
    is_basic_credentials, is_connection_password, is_credential, is_jwt, is_keepsake_key, is_mixed_case,
    is_password, is_placeholder, is_random, is_random_base64,
};

/// The form of a kind of secret.
pub(super) struct Form {
    pub(super) kind: &'static str,
    /// Literals, in any case of letters; every such secret contains one of them.
    pub(super) anchors: &'static [&'static str],
    /// The start of the form, relative to the anchor.
    pub(super) start: Start,
    /// The pattern, from the start of the form. Group 1 is the secret, or the whole
    /// match if there is no group. `{=}` is replaced by [`BETWEEN`].
    pub(super) pattern: &'static str,
    /// An additional check of the secret.
    pub(super) check: fn(&str) -> bool,
}

pub(super) enum Start {
    /// At the anchor, which begins a word. No two words share a byte.
    Word,
    /// At the anchor, which may be the end of a longer name.
    Label,
    /// At most this many letters, digits, `_`, `~`, `.` or `-` before the anchor.
    Before(usize),
}

/// The text between a label and its value in settings, JSON, tables and notes.
pub(super) const BETWEEN: &str = r#"(?:\\?["'`\]]){0,2}\*{0,2}[ \t]{0,8}(?:=>|:=|==?|:|\||[ ]is[ ]|[ ]was[ ]|[ ]to[ ])\*{0,2}[ \t]{0,8}(?:\\?["'`]){0,1}"#;

/// In order of rank: longer and more specific forms first. If two forms overlap,
/// the first one names the kind.
#[rustfmt::skip]
pub(super) const FORMS: &[Form] = &[
    form("keepsake_key", &["ks_live_"], Word, r"ks_live_[0-9A-Za-z]{49}", is_keepsake_key),
    form("aws_access_key_id", &["AKIA", "ASIA", "ABIA", "ACCA"], Word,
        r"A(?:KI|SI|BI|CC)A[A-Z2-7]{16}", is_no_placeholder),
    form("aws_secret_access_key", &["secret"], Label,
        r"(?i:secret)[ _-]?(?i:access)?[ _-]?(?i:key)?{=}([A-Za-z0-9/+]{40})", is_random_base64),
    form("aws_session_token", &["session_token", "sessiontoken"], Label,
        r"(?i:session_?token){=}([A-Za-z0-9/+=]{100,})", is_random_base64),
    form("aws_bedrock_key", &["ABSK"], Word, r"ABSK[A-Za-z0-9+/]{109,269}={0,2}", is_random_base64),
    form("google_api_key", &["AIza"], Word, r"AIza[0-9A-Za-z_-]{35}", is_random),
    form("google_oauth_secret", &["GOCSPX-"], Word, r"GOCSPX-[0-9A-Za-z_-]{28}", is_mixed_case),
    form("google_oauth_token", &["ya29.", "1//0"], Word, r"(?:ya29\.|1//0)[0-9A-Za-z_-]{30,}", is_random),
    form("azure_storage_key", &["AccountKey=", "SharedAccessKey="], Label,
        r"(?i:AccountKey|SharedAccessKey)=([A-Za-z0-9+/]{42,86}={1,2})", is_random_base64),
    form("azure_storage_key",
        &["storage_key", "storage_account_key", "storage_access_key", "account_key"],
        Label, r"(?i:(?:storage_)?(?:account_|access_)?key){=}([A-Za-z0-9+/]{86}==)", is_random_base64),
    form("azure_sas_token", &["&sig=", "?sig="], Label,
        r"[&?]sig=([A-Za-z0-9%+/_-]{40,80}(?:=|%3[Dd]))", is_random),
    form("azure_client_secret", &["Q~"], Before(4),
        r"[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}", is_random),
    form("github_token", &["ghp_", "gho_", "ghu_", "ghs_", "ghr_"], Word,
        r"gh[pousr]_[A-Za-z0-9]{36,251}", is_random),
    form("github_token", &["github_pat_"], Word, r"github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}", is_random),
    form("gitlab_token",
        &["glpat-", "gldt-", "glrt-", "glptt-", "glft-", "glsoat-", "glcbt-", "glimt-", "gloas-"],
        Word, r"gl(?:pat|dt|rt|ptt|ft|soat|cbt|imt|oas)-[A-Za-z0-9_-]{20,300}(?:\.[0-9a-z]{2}\.[0-9a-z]{9})?",
        is_random),
    form("slack_token",
        &["xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxc-", "xoxd-", "xoxe-", "xoxe."],
        Word, r"xox[abprscde](?:\.xox[bp])?-[0-9A-Za-z%+/-]{20,}", is_random),
    form("slack_token", &["xapp-"], Word, r"xapp-[0-9]-[A-Z0-9]{8,}-[0-9]{8,}-[a-z0-9]{40,}", is_random),
    form("slack_webhook", &["hooks.slack.com/"], Label,
        r"(?i:hooks\.slack\.com)/(?:services/T[A-Z0-9]{6,}/B[A-Z0-9]{6,}|workflows/T[A-Z0-9]{6,}/A[A-Z0-9]{6,}/[0-9]{8,}|triggers/[TE][A-Z0-9]{6,}/[0-9]{8,})/([A-Za-z0-9]{20,})",
        is_mixed_case),
    form("stripe_key", &["sk_live_", "sk_test_", "rk_live_", "rk_test_"], Word,
        r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,247}", is_random),
    form("stripe_key", &["whsec_"], Word, r"whsec_[A-Za-z0-9+/]{32,}={0,2}", is_random),
    form("anthropic_key", &["sk-ant-"], Word,
        r"sk-ant-(?:api|admin|oat|ort|sid)[0-9]{2}-[A-Za-z0-9_-]{80,}", is_random),
    form("openrouter_key", &["sk-or-v1-"], Word, r"sk-or-v1-[a-f0-9]{64}", is_random),
    form("openai_key", &["sk-"], Word,
        r"sk-(?:(?:proj|svcacct|admin|service)-[A-Za-z0-9_-]{40,}|[A-Za-z0-9_-]{20,60}T3BlbkFJ[A-Za-z0-9_-]{20,}|[A-Za-z0-9]{48}|[a-z0-9]{32})",
        is_random),
    form("npm_token", &["npm_"], Word, r"npm_[A-Za-z0-9]{36}", is_random),
    form("npm_token", &["_authtoken="], Label, r"(?i:_authtoken)=([A-Za-z0-9_./+=-]{20,})", is_credential),
    form("pypi_token", &["pypi-AgE"], Word, r"pypi-AgE[A-Za-z0-9_-]{50,}", is_random),
    form("sendgrid_key", &["SG."], Word, r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}", is_random),
    form("twilio_key", &["SK"], Word, r"SK[0-9a-f]{32}", is_random),
    form("twilio_key", &["twilio"], Label,
        r"(?i:twilio[a-z0-9 _.-]{0,24}(?:token|secret|key)){=}([0-9a-f]{32})", is_random),
    form("telegram_bot_token", &[":AA"], Before(10), r"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}", is_random),
    form("discord_webhook", &["discord.com/api/webhooks/", "discordapp.com/api/webhooks/"], Label,
        r"(?i:discord(?:app)?\.com/api/webhooks)/[0-9]{17,20}/([A-Za-z0-9_-]{60,})", is_random),
    form("digitalocean_token", &["dop_v1_", "doo_v1_", "dor_v1_"], Word,
        r"do[por]_v1_[a-f0-9]{64}", is_random),
    form("huggingface_token", &["hf_", "api_org_"], Word, r"(?:hf|api_org)_[A-Za-z0-9]{34}", is_mixed_case),
    form("shopify_token", &["shpat_", "shpca_", "shppa_", "shpss_", "shpua_"], Word,
        r"shp(?:at|ca|pa|ss|ua)_[a-fA-F0-9]{32}", is_random),
    form("databricks_token", &["dapi"], Word, r"dapi[a-f0-9]{32}(?:-[0-9])?", is_random),
    form("vault_token", &["hvs.", "hvb.", "hvr."], Word, r"hv[sbr]\.[A-Za-z0-9_-]{24,}", is_random),
    form("cloudflare_token", &["cloudflare", "cf_api_", "cf_token"], Label,
        r"(?i:cloudflare[a-z0-9 _-]{0,24}(?:token|key)|cf_(?:api_)?(?:token|key)){=}([A-Za-z0-9_-]{37,45})",
        is_random),
    form("cloudflare_token", &["v1.0-"], Word, r"v1\.0-[a-f0-9]{24}-[a-f0-9]{146}", is_random),
    form("mailgun_key", &["key-"], Word, r"key-[0-9a-f]{32}", is_random),
    form("mailgun_key", &["mailgun"], Label,
        r"(?i:mailgun[a-z0-9 _-]{0,24}key){=}([0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8})", is_random),
    form("datadog_key", &["dd_api_key", "dd_app_key", "datadog"], Label,
        r"(?i:dd_(?:api|app)_key|datadog[a-z0-9 _-]{0,24}key){=}([0-9a-f]{40}|[0-9a-f]{32})", is_random),
    form("linear_key", &["lin_api_", "lin_oauth_"], Word, r"lin_(?:api|oauth)_[A-Za-z0-9]{40,64}", is_random),
    form("notion_token", &["ntn_", "secret_"], Word,
        r"ntn_[0-9]{11}[A-Za-z0-9]{35}|secret_[A-Za-z0-9]{43}", is_random),
    form("figma_token", &["figd_"], Word, r"figd_[A-Za-z0-9_-]{40,}", is_random),
    form("grafana_token", &["glsa_", "glc_"], Word,
        r"glsa_[A-Za-z0-9]{32}_[a-f0-9]{8}|glc_eyJ[A-Za-z0-9+/]{60,}={0,2}", is_random),
    form("new_relic_key", &["NRAK-"], Word, r"NRAK-[A-Z0-9]{27}", is_random),
    form("postman_key", &["PMAK-"], Word, r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}", is_random),
    form("rubygems_key", &["rubygems_"], Word, r"rubygems_[a-f0-9]{48}", is_random),
    form("crates_io_token", &["cio"], Word, r"cio[A-Za-z0-9]{32}", is_random_base64),
    form("sentry_token", &["sntrys_", "sntryu_"], Word,
        r"sntrys_[A-Za-z0-9+/=_-]{40,}|sntryu_[a-f0-9]{64}", is_random),
    form("square_token", &["sq0csp-", "EAAA"], Word,
        r"sq0csp-[A-Za-z0-9_-]{43}|EAAA[A-Za-z0-9_-]{60}", is_random),
    form("docker_token", &["dckr_pat_", "dckr_oat_"], Word, r"dckr_[po]at_[A-Za-z0-9_-]{27,}", is_random),
    form("terraform_token", &[".atlasv1."], Before(14),
        r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{60,}", is_random),
    form("planetscale_token", &["pscale_"], Word, r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.-]{32,}", is_random),
    form("doppler_token", &["dp."], Word,
        r"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,44}", is_random),
    form("atlassian_token", &["ATATT3"], Word, r"ATATT3[A-Za-z0-9_=-]{60,}", is_random),
    form("groq_key", &["gsk_"], Word, r"gsk_[A-Za-z0-9]{52}", is_random),
    form("replicate_token", &["r8_"], Word, r"r8_[A-Za-z0-9]{37}", is_random),
    form("xai_key", &["xai-"], Word, r"xai-[A-Za-z0-9]{80}", is_random),
    form("perplexity_key", &["pplx-"], Word, r"pplx-[A-Za-z0-9]{48}", is_random),
    form("supabase_key", &["sbp_", "sb_secret_"], Word,
        r"sbp_[a-f0-9]{40}|sb_secret_[A-Za-z0-9_-]{31,}", is_random),
    form("fly_token", &["fm1r_", "fm1a_", "fm2_"], Word,
        r"fm(?:1[ra]|2)_[A-Za-z0-9+/]{60,}={0,2}", is_random),
    form("age_key", &["AGE-SECRET-KEY-1"], Word, r"AGE-SECRET-KEY-1[02-9AC-HJ-NP-Z]{58}", is_random),
    form("heroku_key", &["HRKU-"], Word, r"HRKU-[A-Za-z0-9_-]{36,}", is_random),
    form("netlify_token", &["nfp_"], Word, r"nfp_[A-Za-z0-9]{36}", is_random),
    form("pulumi_token", &["pul-"], Word, r"pul-[a-f0-9]{40}", is_random),
    form("tailscale_key", &["tskey-"], Word,
        r"tskey-(?:auth|api|client|scim|webhook)-[A-Za-z0-9]{8,}-[A-Za-z0-9]{20,}", is_random),
    form("jwt", &["eyJ"], Word,
        r"eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]{4,}){0,3}\.[A-Za-z0-9_-]{16,}", is_jwt),
    form("authorization_header", &["bearer "], Label,
        r"(?i:bearer) ([A-Za-z0-9._~+/=-]{20,})", is_credential),
    form("authorization_header", &["basic "], Label,
        r"(?i:basic) ([A-Za-z0-9+/]{10,}={0,2})", is_basic_credentials),
    form("connection_string", &["://"], Label,
        r#"://(?:[^\s/?\#@:"'<>`|]{0,128}):([^\s/?\#"'<>`|]+)@[A-Za-z0-9\[$%]"#, is_connection_password),
    form("connection_string", &["password=", "pwd="], Label,
        r#"(?i:password|pwd)=["']?([^;\s"'<>&=]{4,}={0,2})["']?(?:;|[ ](?:host|user|dbname|port|sslmode)=)"#,
        is_connection_password),
    form("password", &["password", "passwd", "passphrase", "pwd"], Label,
        r#"(?i:password|passwd|passphrase|pwd){=}([^\s"'`,;<>(){}\[\]\\|]{8,})"#, is_password),
    form("credential",
        &["token", "secret", "apikey", "api_key", "api-key", "api key", "access_key", "accesskey",
            "private_key", "signing_key", "encryption_key"],
        Label,
        r#"(?i:token|secret(?:[ _-]?key)?|(?:api|access|private|signing|encryption)[ _-]?key){=}([^\s"'`,;&<>(){}\[\]\\|]{16,})"#,
        is_credential),
];

const fn form(
    kind: &'static str,
    anchors: &'static [&'static str],
    start: Start,
    pattern: &'static str,
    check: fn(&str) -> bool,
) -> Form {
    Form { kind, anchors, start, pattern, check }
}

fn is_no_placeholder(text: &str) -> bool {
    !is_placeholder(text)
}
