//! Lists of numbers as the system writes them.

use std::collections::BTreeSet;

/// Numbers in a list of processors.
const NUMBER_MAX: usize = 1 << 16;

/// The numbers of a list such as `0-3,8`.
pub(super) fn numbers(list: &str) -> Option<BTreeSet<usize>> {
    let mut numbers = BTreeSet::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last > NUMBER_MAX {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use gannet_loader::machine::System;
    use std::fs;

    /// A system of these files.
    pub(crate) fn system(files: &[(&str, &str)]) -> (tempfile::TempDir, System) {
        let folder = tempfile::tempdir().unwrap();
        let system = System::below(folder.path());
        for (path, text) in files {
            let place = system.place(path);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(place, text).unwrap();
        }
        (folder, system)
    }

    #[test]
    fn lists_of_processors_are_ranges_and_numbers() {
        let check = |list: &str, expected: Option<&[usize]>| {
            let expected = expected.map(|numbers| numbers.iter().copied().collect());
            assert_eq!(numbers(list), expected, "{list:?}");
        };
        check("0-3,8\n", Some(&[0, 1, 2, 3, 8]));
        check("5", Some(&[5]));
        check("3-1", Some(&[]));
        check("", None);
        check("0-x", None);
        check("0-99999999999", None);
    }
}
