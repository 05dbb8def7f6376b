//! The fuzz targets of `tools/fuzz`, on their seeds only: a landing does not wait for fuzzing.

/// Names each target, and tests it on its seeds.
macro_rules! targets {
    ($($target:ident: $file:literal),+ $(,)?) => {
        $(
            #[path = $file]
            #[expect(unused_attributes, reason = "`no_main` is for the program that libFuzzer starts")]
            mod $target;

            #[test]
            fn $target() {
                for seed in seeds(stringify!($target)) {
                    $target::run(&seed);
                }
            }
        )+

        #[test]
        fn every_target_is_tested_on_its_seeds() {
            let folder = crate::repository().join("tools/fuzz/targets");
            let mut found: Vec<_> = std::fs::read_dir(folder)
                .unwrap()
                .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
                .collect();
            found.sort();
            assert_eq!(found, [$(stringify!($target)),+]);
        }
    };
}

targets! {
    archive: "../../../tools/fuzz/targets/archive.rs",
    cursor: "../../../tools/fuzz/targets/cursor.rs",
    jwt_header: "../../../tools/fuzz/targets/jwt_header.rs",
    path: "../../../tools/fuzz/targets/path.rs",
    scanner: "../../../tools/fuzz/targets/scanner.rs",
    search: "../../../tools/fuzz/targets/search.rs",
    test_file: "../../../tools/fuzz/targets/test_file.rs",
    tool_input: "../../../tools/fuzz/targets/tool_input.rs",
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = crate::repository().join("tools/fuzz/seeds").join(target);
    let seeds: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .collect();
    assert!(!seeds.is_empty(), "{target} has no seeds");
    seeds
}

/// Stands in for the macro of libFuzzer: makes a function of the target.
#[macro_export]
macro_rules! fuzz_target {
    (|$data:ident: &[u8]| $body:block) => {
        pub(crate) fn run($data: &[u8]) {
            $body
        }
    };
    (|$text:ident: &str| $body:block) => {
        pub(crate) fn run(data: &[u8]) {
            // As libFuzzer does: up to the first bytes that are not UTF-8.
            let $text = data.utf8_chunks().next().map_or("", |chunk| chunk.valid());
            $body
        }
    };
}
