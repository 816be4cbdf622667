//! The tree against a list of everything that was published.

use super::publish::PageAt;
use super::*;
use gannet_ops::PAGE_TOKENS;

const KEY: PrefixKey = PrefixKey { numerics: NumericsId(1), salt: 0 };
const OTHER_SALT: PrefixKey = PrefixKey { salt: 1, ..KEY };
/// The same model with keys and values in another format, say.
const OTHER_NUMERICS: PrefixKey = PrefixKey { numerics: NumericsId(2), ..KEY };

fn tokens(text: &[u32]) -> Vec<TokenId> {
    text.iter().copied().map(TokenId).collect()
}

/// A run of `count` tokens that starts with `first` and is told apart by it.
fn run(first: u32, count: usize) -> Vec<TokenId> {
    (0..count as u32).map(|n| TokenId(first * 1000 + n)).collect()
}

fn full_tree() -> PrefixTree {
    PrefixTree::new([(PageLifetime::Full, 8)])
}

fn publish(tree: &mut PrefixTree, tokens: &[TokenId], numbers: &[u32]) -> Vec<u32> {
    let published = published(tree, tokens, numbers);
    published.shared.iter().map(|(_, page)| page.0).collect()
}

fn published(tree: &mut PrefixTree, tokens: &[TokenId], numbers: &[u32]) -> Published {
    let at: PageAt<'_> = &|place, _| numbers.get(place).map(|page| PageId(*page));
    let mut published = Published::default();
    tree.publish(KEY, tokens, at, &mut published);
    tree.check();
    published
}

/// The pages that the tree gives up for one that is free without it.
fn evicted(tree: &mut PrefixTree, group: usize, held: u32) -> Option<Vec<u32>> {
    let mut dropped = Dropped::default();
    let found = tree.evict_page(group, |page| page.0 != held, &mut dropped);
    tree.check();
    found.then(|| dropped.pages.iter().map(|(_, page)| page.0).collect())
}

fn resume_at(tree: &mut PrefixTree, tokens: &[TokenId]) -> (usize, usize) {
    let walk = tree.walk(KEY, tokens);
    (walk.common, tree.resume(&walk, tokens.len() - 1, false).tokens)
}

#[test]
fn a_prefix_is_found_at_any_token() {
    let mut tree = full_tree();
    let known = run(1, 150);
    assert_eq!(publish(&mut tree, &known, &[0, 1, 2]), [0, 1, 2]);
    assert_eq!(resume_at(&mut tree, &known), (150, 149));
    assert_eq!(resume_at(&mut tree, &known[..64]), (64, 63));
    assert_eq!(resume_at(&mut tree, &[&known[..100], &run(2, 50)].concat()), (100, 100));
    assert_eq!(resume_at(&mut tree, &run(2, 10)), (0, 0));
}

#[test]
fn what_is_known_is_not_owned_twice() {
    let mut tree = full_tree();
    let known = run(1, 128);
    publish(&mut tree, &known, &[0, 1]);
    assert_eq!(publish(&mut tree, &known, &[7, 8]), [0; 0]);
    assert_eq!(publish(&mut tree, &[&known[..], &run(2, 64)].concat(), &[7, 8, 9]), [9]);
}

#[test]
fn a_page_that_fills_takes_the_place_of_its_beginning() {
    let mut tree = full_tree();
    let known = run(1, 64);
    publish(&mut tree, &known[..10], &[3]);
    assert_eq!(publish(&mut tree, &known, &[3]), [0; 0], "the page is the same");
    let mut other = full_tree();
    publish(&mut other, &known[..10], &[3]);
    let published = published(&mut other, &known, &[4]);
    assert_eq!((published.shared, published.dropped.pages), (vec![(0, PageId(4))], vec![(0, PageId(3))]));
    assert_eq!(resume_at(&mut other, &[&known[..], &run(2, 2)].concat()), (64, 64));
}

#[test]
fn branches_inside_of_a_page_are_siblings() {
    let mut tree = full_tree();
    let first = [run(1, 30), run(2, 34)].concat();
    let second = [run(1, 30), run(3, 34)].concat();
    publish(&mut tree, &first, &[0]);
    assert_eq!(publish(&mut tree, &second, &[1]), [1]);
    assert_eq!(resume_at(&mut tree, &[&second[..], &tokens(&[5])].concat()), (64, 64));
    assert_eq!(resume_at(&mut tree, &[run(1, 30), run(4, 10)].concat()), (30, 30));
}

#[test]
fn other_salts_and_other_numerics_find_nothing() {
    let mut tree = full_tree();
    publish(&mut tree, &run(1, 64), &[0]);
    let common = [KEY, OTHER_SALT, OTHER_NUMERICS].map(|key| tree.walk(key, &run(1, 64)).common);
    assert_eq!(common, [64, 0, 0]);
}

#[test]
fn the_leaf_that_was_used_longest_ago_goes_first_and_only_where_it_frees_a_page() {
    let mut tree = full_tree();
    let trunk = run(1, 64);
    publish(&mut tree, &[&trunk[..], &run(2, 64)].concat(), &[0, 1]);
    publish(&mut tree, &[&trunk[..], &run(3, 64)].concat(), &[0, 2]);
    tree.walk(KEY, &[&trunk[..], &run(2, 64)].concat());
    assert_eq!(evicted(&mut tree, 0, 2), Some(vec![1]), "page 2 is held by others");
    assert_eq!(evicted(&mut tree, 0, 99), Some(vec![2]));
    assert_eq!(evicted(&mut tree, 0, 99), Some(vec![0]));
    assert_eq!(evicted(&mut tree, 0, 99), None);
    assert_eq!(tree.roots.len(), 0, "a key without nodes is forgotten");
}

fn windowed_tree() -> PrefixTree {
    PrefixTree::new([(PageLifetime::Full, 8), (PageLifetime::Window(64), 8)])
}

/// With pages from 0 on, and from 10 on in the window's group.
fn publish_windowed(tree: &mut PrefixTree, tokens: &[TokenId]) {
    let at = |place: usize, group: usize| Some(PageId(10 * group as u32 + place as u32));
    tree.publish(KEY, tokens, &at, &mut Published::default());
    tree.check();
}

#[test]
fn the_windows_of_likely_branches_go_last() {
    let mut tree = windowed_tree();
    let known = run(1, 320);
    publish_windowed(&mut tree, &known);
    // A row at 130 reads indices from 67 on: pages 1 and 2.
    tree.anchor(KEY, &known[..130]);
    let order: Vec<_> = std::iter::from_fn(|| evicted(&mut tree, 1, 99)).flatten().collect();
    assert_eq!(order, [10, 13, 14, 11, 12]);
}

#[test]
fn a_window_that_was_lost_comes_back_with_who_computes_it_again() {
    let mut tree = windowed_tree();
    let known = run(1, 200);
    publish_windowed(&mut tree, &known);
    while evicted(&mut tree, 1, 99).is_some() {}
    let longer = [&known[..], &run(2, 5)].concat();
    assert_eq!(resume_at(&mut tree, &longer), (200, 0));
    publish_windowed(&mut tree, &known);
    assert_eq!(resume_at(&mut tree, &longer), (200, 200));
}

#[test]
fn where_no_group_keeps_whole_sequences_the_number_of_nodes_has_a_limit() {
    let mut tree = PrefixTree::new([(PageLifetime::Window(64), 2)]);
    let mut held = Vec::new();
    for first in 0..200 {
        // Each sequence outgrows its window, so that most of its nodes have no page left.
        let known = run(first, 640);
        let at = |place: usize, _: usize| (place >= 9).then_some(PageId(first));
        let mut published = Published::default();
        tree.publish(KEY, &known, &at, &mut published);
        held.extend(published.shared);
        held.retain(|page| !published.dropped.pages.contains(page));
        tree.check();
        assert_eq!(tree.walk(KEY, &known).common, 640, "the newest is there");
        assert_eq!(tree.pages(0).count(), held.len());
    }
    assert_eq!(tree.count(), 2 * NODES_PER_WINDOW_PAGE);
}

#[test]
fn a_window_needs_its_last_pages_alone() {
    let mut tree = windowed_tree();
    let known = run(1, 256);
    publish_windowed(&mut tree, &known);
    let longer = [&known[..], &run(2, 5)].concat();
    // Inner pages go first, and a hit at the end needs the last two at most.
    for expected in [10, 11] {
        assert_eq!(evicted(&mut tree, 1, 99), Some(vec![expected]));
    }
    let walk = tree.walk(KEY, &longer);
    assert_eq!(tree.resume(&walk, 260, false).tokens, 256);
    assert_eq!(tree.pages_for(&walk, 1, 256), (3, vec![PageId(13)]));
    assert_eq!(tree.resume(&walk, 200, false).tokens, 200);
    // At 191 the row reads indices from 128 on, at 190 one on an evicted page.
    assert_eq!(tree.resume(&walk, 191, false).tokens, 191);
    assert_eq!(tree.resume(&walk, 190, false).tokens, 0);
}

#[test]
fn recurrent_state_resumes_at_snapshots_alone() {
    let mut tree = full_tree();
    let known = run(1, 150);
    publish(&mut tree, &known, &[0, 1, 2]);
    for (place, length) in [70, 128, 150].into_iter().enumerate() {
        tree.keep_snapshot(KEY, &known[..length], SnapshotId(place as u32))
            .expect("the tokens are published");
    }
    assert_eq!(
        tree.keep_snapshot(KEY, &known[..70], SnapshotId(9)),
        Err(SnapshotId(9)),
        "one is there already"
    );
    let mut resume = |tokens: &[TokenId], at_most: usize| {
        let walk = tree.walk(KEY, tokens);
        let found = tree.resume(&walk, at_most, true);
        (found.tokens, found.snapshot.map(|id| id.0))
    };
    let longer = [&known[..], &run(2, 5)].concat();
    assert_eq!(resume(&longer, 154), (150, Some(2)));
    assert_eq!(resume(&known, 149), (128, Some(1)));
    assert_eq!(resume(&known, 127), (70, Some(0)));
    assert_eq!(resume(&[&known[..60], &run(2, 5)].concat(), 64), (0, None));
}

#[test]
fn a_cut_takes_out_a_node_and_all_behind_it() {
    let mut tree = full_tree();
    let known = run(1, 192);
    publish(&mut tree, &known, &[0, 1, 2]);
    let mut dropped = Dropped::default();
    tree.cut(KEY, &known, &|_, pages| pages[0] == Some(PageId(1)), &mut dropped);
    let mut pages: Vec<u32> = dropped.pages.iter().map(|(_, page)| page.0).collect();
    pages.sort_unstable();
    assert_eq!(pages, [1, 2]);
    assert_eq!(tree.walk(KEY, &known).common, PAGE_TOKENS);
    tree.check();
}
