//! The fully connected product: what its matrix product skeletons ask of an algebra.
//!
//! For each path `p = (a, b, c)`: `o_b += A_p w_p`, where `A_p` holds the terms of the path between
//! `x_a` and `y_c`. The skeletons form `A_p` in registers, from code that is emitted here, and need to know
//! which blades and paths are computed together:
//!
//! - `Forward`: up to [`FORWARD_BLADES`] output blades, with all paths that reach them;
//! - `Weights`: gradients of the weights of up to [`WEIGHT_PATHS`] paths of one output grade;
//! - `Operands`: gradients of the operands through up to [`OPERAND_SLICES`] pairs of a path and a blade.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::Range;

use cayley::{Algebra, Path};

/// Output blades whose sums a warp of the forward pass keeps in registers.
const FORWARD_BLADES: usize = 4;
/// Paths whose weights are in shared memory at a time.
const BATCH_PATHS: usize = 10;
/// Paths whose weight gradients a warp keeps in registers.
const WEIGHT_PATHS: usize = 4;
/// Products of a path and a blade that a warp of the operands' gradients keeps in registers.
const OPERAND_SLICES: usize = 18;
/// Output blades of these at the most.
const OPERAND_BLADES: usize = 6;

/// A term of the Cayley table: `sign x_left y_right` in the component `output`.
struct Term {
    left: usize,
    output: usize,
    right: usize,
    negative: bool,
}

/// Some blades of one grade.
struct Piece {
    grade: usize,
    blades: Range<usize>,
}

/// The struct of an algebra.
pub(super) fn emit(algebra: &Algebra) -> String {
    Emitter {
        algebra,
        paths: algebra.paths(),
    }
    .emit()
}

struct Emitter<'a> {
    algebra: &'a Algebra,
    paths: Vec<Path>,
}

impl Emitter<'_> {
    fn emit(&self) -> String {
        let mut text = String::from("struct FullyConnected {\n");
        let (blades, grades) = (self.algebra.blade_count(), self.algebra.grade_count());
        let _ = writeln!(text, "  static constexpr int kBlades = {blades};");
        let _ = writeln!(text, "  static constexpr int kGrades = {grades};");
        let _ = writeln!(
            text,
            "  static constexpr int kPaths = {};",
            self.paths.len()
        );
        let grade_of: Vec<usize> = (0..blades).map(|i| self.algebra.grade_of(i)).collect();
        text.push_str(&table("grade_of", &grade_of));
        let groups = self.forward_groups();
        let mut parts = Vec::new();
        for (index, group) in groups.iter().enumerate() {
            text.push_str(&self.forward(index, group, parts.len()));
            let mut of_group: Vec<usize> = group.iter().map(|piece| piece.grade).collect();
            of_group.dedup();
            parts.extend(of_group);
        }
        let weights = self.weight_groups();
        for (index, group) in weights.iter().enumerate() {
            text.push_str(&self.weights(index, group));
        }
        let operands = self.operand_groups();
        for (index, (blades, group)) in operands.iter().enumerate() {
            text.push_str(&self.operands(index, blades, group));
        }
        // What the launcher must make room for.
        let most = |sizes: &mut dyn Iterator<Item = usize>| sizes.max().unwrap_or(0);
        for (name, value) in [
            (
                "kForwardBatchPaths",
                most(
                    &mut groups
                        .iter()
                        .map(|group| self.paths_of(group).len().div_ceil(self.batches(group))),
                ),
            ),
            (
                "kOperandsBlades",
                most(&mut operands.iter().map(|o| o.0.len())),
            ),
            (
                "kOperandsPaths",
                most(&mut operands.iter().map(|o| o.1.len())),
            ),
        ] {
            let _ = writeln!(text, "  static constexpr int {name} = {value};");
        }
        let operand_counts: Vec<usize> = weights.iter().map(|g| self.operand_count(g)).collect();
        text.push_str(&table("weights_operands", &operand_counts));
        let blade_counts: Vec<usize> = weights.iter().map(|g| self.output_of(g).len()).collect();
        text.push_str(&table("weights_blades", &blade_counts));
        // The grade of each partial sum of squares.
        let _ = writeln!(text, "  static constexpr int kParts = {};", parts.len());
        text.push_str(&table("part_grade", &parts));
        for (name, count) in [
            ("Forward", groups.len()),
            ("Weights", weights.len()),
            ("Operands", operands.len()),
        ] {
            let _ = writeln!(text, "  static constexpr int k{name}Groups = {count};");
        }
        text.push_str(&dispatch("forward", "Forward", groups.len()));
        text.push_str(&dispatch("weights", "Weights", weights.len()));
        text.push_str("  template <class F>\n  FC_INLINE static void each_operands(F &&f) {\n");
        for index in 0..operands.len() {
            let _ = writeln!(text, "    f(Operands{index}());");
        }
        text.push_str("  }\n};\n");
        text
    }

    fn terms(&self, path: Path) -> Vec<Term> {
        let [left, right] = [path.left, path.right].map(|grade| self.algebra.grade_range(grade));
        let mut terms = Vec::new();
        for left in left {
            for right in right.clone() {
                let Some((output, sign)) = self.algebra.multiply(left, right) else {
                    continue;
                };
                if self.algebra.grade_of(output) == path.output {
                    terms.push(Term {
                        left,
                        output,
                        right,
                        negative: sign < 0,
                    });
                }
            }
        }
        terms
    }

    fn paths_to(&self, grade: usize) -> impl Iterator<Item = usize> {
        let paths = self.paths.iter().enumerate();
        paths.filter_map(move |(index, path)| (path.output == grade).then_some(index))
    }

    // ---- forward ----

    /// Grades are cut into pieces, and these are put together, the largest first.
    fn forward_groups(&self) -> Vec<Vec<Piece>> {
        let mut pieces = Vec::new();
        for grade in 0..self.algebra.grade_count() {
            let range = self.algebra.grade_range(grade);
            for start in range.clone().step_by(FORWARD_BLADES) {
                let blades = start..range.end.min(start + FORWARD_BLADES);
                pieces.push(Piece { grade, blades });
            }
        }
        pieces.sort_by_key(|piece| std::cmp::Reverse(piece.blades.len()));
        let mut groups: Vec<Vec<Piece>> = Vec::new();
        for piece in pieces {
            let size = |group: &Vec<Piece>| group.iter().map(|p| p.blades.len()).sum::<usize>();
            let fits = |group: &&mut Vec<Piece>| size(group) + piece.blades.len() <= FORWARD_BLADES;
            match groups.iter_mut().find(fits) {
                Some(group) => group.push(piece),
                None => groups.push(vec![piece]),
            }
        }
        groups
    }

    fn paths_of<'g>(&self, group: &'g [Piece]) -> Vec<(&'g Piece, usize)> {
        let mut paths = Vec::new();
        for piece in group {
            paths.extend(self.paths_to(piece.grade).map(|path| (piece, path)));
        }
        paths
    }

    fn batches(&self, group: &[Piece]) -> usize {
        self.paths_of(group).len().div_ceil(BATCH_PATHS)
    }

    fn forward(&self, index: usize, group: &[Piece], first_part: usize) -> String {
        let (paths, batches) = (self.paths_of(group), self.batches(group));
        let blades: Vec<usize> = group.iter().flat_map(|p| p.blades.clone()).collect();
        let mut grades = Vec::new();
        let mut parts = Vec::new();
        for piece in group {
            if grades.last() != Some(&piece.grade) {
                grades.push(piece.grade);
            }
            parts.extend(piece.blades.clone().map(|_| first_part + grades.len() - 1));
        }
        let mut text = format!("  struct Forward{index} {{\n");
        let _ = writeln!(text, "    static constexpr int kBlades = {};", blades.len());
        let _ = writeln!(text, "    static constexpr int kBatches = {batches};");
        text.push_str(&indented(&table("blade", &blades)));
        text.push_str(&indented(&table("part", &parts)));
        let in_batch = |batch: usize| paths.iter().skip(batch).step_by(batches);
        let counts: Vec<usize> = (0..batches).map(|b| in_batch(b).count()).collect();
        let _ = writeln!(
            text,
            "    static constexpr int kBatchPaths = {};",
            counts.iter().max().unwrap_or(&0)
        );
        text.push_str(&indented(&table("batch_paths", &counts)));
        let width = counts.iter().max().copied().unwrap_or(0);
        let mut all = Vec::new();
        for batch in 0..batches {
            let mut row: Vec<usize> = in_batch(batch).map(|(_, path)| *path).collect();
            row.resize(width, 0);
            all.extend(row);
        }
        text.push_str(&indented(&table("path", &all)));
        text.push_str(
            "    template <int Batch, class C>\n    FC_INLINE static void step(C &c) {\n",
        );
        text.push_str("      using V = typename C::V;\n");
        for batch in 0..batches {
            let _ = writeln!(text, "      if constexpr (Batch == {batch}) {{");
            for (slot, (piece, path)) in in_batch(batch).enumerate() {
                let path = self.paths[*path];
                let first = blades.iter().position(|b| *b == piece.blades.start);
                let _ = writeln!(text, "        {{  // {}", name(path));
                let terms: Vec<Term> = self.terms(path);
                let terms: Vec<Term> = terms
                    .into_iter()
                    .filter(|t| piece.blades.contains(&t.output))
                    .collect();
                text.push_str(&loads(&terms, 10, |b| b, |b| b));
                let count = piece.blades.len();
                let _ = writeln!(text, "          V a[{count}];");
                for (at, blade) in piece.blades.clone().enumerate() {
                    let terms: Vec<&Term> = terms.iter().filter(|t| t.output == blade).collect();
                    text.push_str(&sum(&format!("a[{at}]"), &terms, 10));
                }
                let _ = writeln!(
                    text,
                    "          c.template multiply<{}, {count}>({slot}, a);\n        }}",
                    first.unwrap_or(0)
                );
            }
            text.push_str("      }\n");
        }
        text.push_str("    }\n  };\n");
        text
    }

    // ---- gradients of the weights ----

    fn weight_groups(&self) -> Vec<Vec<usize>> {
        let mut groups = Vec::new();
        for grade in 0..self.algebra.grade_count() {
            groups.extend(even_chunks(
                &self.paths_to(grade).collect::<Vec<_>>(),
                WEIGHT_PATHS,
            ));
        }
        // The most work first.
        let work = |group: &Vec<usize>| {
            let blades = self.algebra.grade_range(self.paths[group[0]].output).len();
            std::cmp::Reverse(blades * group.len())
        };
        groups.sort_by_key(work);
        groups
    }

    /// The blades of the output grade of some paths.
    fn output_of(&self, group: &[usize]) -> Range<usize> {
        self.algebra.grade_range(self.paths[group[0]].output)
    }

    /// How many blades of both operands some paths need.
    fn operand_count(&self, group: &[usize]) -> usize {
        let terms = group.iter().flat_map(|&path| self.terms(self.paths[path]));
        let operands: BTreeSet<(bool, usize)> = terms
            .flat_map(|t| [(true, t.left), (false, t.right)])
            .collect();
        operands.len()
    }

    fn weights(&self, index: usize, group: &[usize]) -> String {
        let output = self.output_of(group);
        let terms: Vec<Vec<Term>> = group.iter().map(|&p| self.terms(self.paths[p])).collect();
        let lefts: BTreeSet<usize> = terms.iter().flatten().map(|t| t.left).collect();
        let rights: BTreeSet<usize> = terms.iter().flatten().map(|t| t.right).collect();
        let (lefts, rights): (Vec<usize>, Vec<usize>) =
            (lefts.into_iter().collect(), rights.into_iter().collect());
        let blades: Vec<usize> = output.clone().collect();
        let mut text = format!("  struct Weights{index} {{\n");
        for (name, count) in [
            ("kPaths", group.len()),
            ("kBlades", blades.len()),
            ("kLefts", lefts.len()),
            ("kRights", rights.len()),
        ] {
            let _ = writeln!(text, "    static constexpr int {name} = {count};");
        }
        text.push_str(&indented(&table("path", group)));
        text.push_str(&indented(&table("blade", &blades)));
        text.push_str(&indented(&table("left", &lefts)));
        text.push_str(&indented(&table("right", &rights)));
        text.push_str("    template <class C>\n    FC_INLINE static void step(C &c) {\n");
        text.push_str("      using V = typename C::V;\n");
        let slot = |list: &[usize], blade: usize| {
            let found = list.iter().position(|b| *b == blade);
            found.unwrap_or(0)
        };
        for (at, blade) in output.enumerate() {
            let of_blade: Vec<Vec<&Term>> = terms
                .iter()
                .map(|terms| terms.iter().filter(|t| t.output == blade).collect())
                .collect();
            let all: Vec<&Term> = of_blade.iter().flatten().copied().collect();
            let _ = writeln!(text, "      {{  // {}", self.algebra.blade_name(blade));
            text.push_str(&loads(
                all.iter().copied(),
                8,
                |b| slot(&lefts, b),
                |b| slot(&rights, b),
            ));
            let _ = writeln!(text, "        V a[{}];", group.len());
            for (path, terms) in of_blade.iter().enumerate() {
                text.push_str(&sum(&format!("a[{path}]"), terms, 8));
            }
            let _ = writeln!(text, "        c.multiply({at}, a);\n      }}");
        }
        text.push_str("    }\n  };\n");
        text
    }

    // ---- gradients of the operands ----

    fn operand_groups(&self) -> Vec<(Range<usize>, Vec<usize>)> {
        let mut groups = Vec::new();
        for grade in 0..self.algebra.grade_count() {
            let blades: Vec<usize> = self.algebra.grade_range(grade).collect();
            let paths: Vec<usize> = self.paths_to(grade).collect();
            for blades in even_chunks(&blades, OPERAND_BLADES) {
                for paths in even_chunks(&paths, OPERAND_SLICES / blades.len()) {
                    groups.push((blades[0]..blades[blades.len() - 1] + 1, paths));
                }
            }
        }
        groups
    }

    fn operands(&self, index: usize, blades: &Range<usize>, group: &[usize]) -> String {
        let mut text = format!("  struct Operands{index} {{\n");
        let _ = writeln!(text, "    static constexpr int kBlades = {};", blades.len());
        let _ = writeln!(text, "    static constexpr int kPaths = {};", group.len());
        let list: Vec<usize> = blades.clone().collect();
        text.push_str(&indented(&table("blade", &list)));
        text.push_str(&indented(&table("path", group)));
        text.push_str("    template <class C>\n    FC_INLINE static void update(C &c) {\n");
        text.push_str("      using V = typename C::V;\n");
        for (at, &path) in group.iter().enumerate() {
            let path = self.paths[path];
            let terms: Vec<Term> = self.terms(path);
            let terms: Vec<Term> = terms
                .into_iter()
                .filter(|t| blades.contains(&t.output))
                .collect();
            let _ = writeln!(text, "      {{  // {}", name(path));
            let slices: BTreeSet<usize> = terms.iter().map(|t| t.output).collect();
            for blade in slices {
                let _ = writeln!(
                    text,
                    "        const V d{blade} = c.template d<{at}, {}>();",
                    blade - blades.start
                );
            }
            for (own, other, pick) in [
                (
                    "u",
                    "y",
                    (|t: &Term| (t.left, t.right)) as fn(&Term) -> (usize, usize),
                ),
                ("v", "x", |t: &Term| (t.right, t.left)),
            ] {
                text.push_str("        {\n");
                let others: BTreeSet<usize> = terms.iter().map(|t| pick(t).1).collect();
                for blade in others {
                    let _ = writeln!(
                        text,
                        "          const V {other}{blade} = c.{other}({blade});"
                    );
                }
                let owns: BTreeSet<usize> = terms.iter().map(|t| pick(t).0).collect();
                for blade in owns {
                    let _ = writeln!(text, "          V {own}{blade} = c.{own}({blade});");
                    for term in terms.iter().filter(|t| pick(t).0 == blade) {
                        let function = if term.negative { "subtract" } else { "add" };
                        let _ = writeln!(
                            text,
                            "          {function}({own}{blade}, d{}, {other}{});",
                            term.output,
                            pick(term).1
                        );
                    }
                    let _ = writeln!(text, "          c.set_{own}({blade}, {own}{blade});");
                }
                text.push_str("        }\n");
            }
            text.push_str("      }\n");
        }
        text.push_str("    }\n  };\n");
        text
    }
}

/// The declarations of the operands of some terms; `left` and `right` give their places.
fn loads<'t>(
    terms: impl IntoIterator<Item = &'t Term>,
    indent: usize,
    left: impl Fn(usize) -> usize,
    right: impl Fn(usize) -> usize,
) -> String {
    let (mut lefts, mut rights) = (BTreeSet::new(), BTreeSet::new());
    for term in terms {
        lefts.insert(term.left);
        rights.insert(term.right);
    }
    let mut text = String::new();
    for blade in lefts {
        let _ = writeln!(
            text,
            "{:indent$}const V x{blade} = c.x({});",
            "",
            left(blade)
        );
    }
    for blade in rights {
        let _ = writeln!(
            text,
            "{:indent$}const V y{blade} = c.y({});",
            "",
            right(blade)
        );
    }
    text
}

/// Statements that give `target` the sum of some terms.
fn sum(target: &str, terms: &[&Term], indent: usize) -> String {
    let mut text = String::new();
    for (index, term) in terms.iter().enumerate() {
        let (left, right) = (term.left, term.right);
        let statement = match (index, term.negative) {
            (0, false) => format!("{target} = product(x{left}, y{right});"),
            (0, true) => format!("{target} = minus_product(x{left}, y{right});"),
            (_, false) => format!("add({target}, x{left}, y{right});"),
            (_, true) => format!("subtract({target}, x{left}, y{right});"),
        };
        let _ = writeln!(text, "{:indent$}{statement}", "");
    }
    if terms.is_empty() {
        let _ = writeln!(text, "{:indent$}{target} = zero<V>();", "");
    }
    text
}

/// A function from an index to a number.
fn table(name: &str, numbers: &[usize]) -> String {
    let list: Vec<String> = numbers.iter().map(usize::to_string).collect();
    format!("  FC_TABLE({name}, {})\n", list.join(", "))
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

/// A function that calls another with the struct of a number.
fn dispatch(function: &str, name: &str, count: usize) -> String {
    let mut text = format!(
        "  template <class F>\n  FC_INLINE static void with_{function}(int group, F &&f) {{\n    switch (group) {{\n"
    );
    for index in 0..count {
        let _ = writeln!(text, "      case {index}: f({name}{index}()); break;");
    }
    text.push_str("      default: break;\n    }\n  }\n");
    text
}

/// Chunks of at most `most`, of nearly equal size.
fn even_chunks(list: &[usize], most: usize) -> Vec<Vec<usize>> {
    let count = list.len().div_ceil(most.max(1)).max(1);
    let size = list.len().div_ceil(count).max(1);
    list.chunks(size).map(<[usize]>::to_vec).collect()
}

fn name(path: Path) -> String {
    format!("{} {} {}", path.left, path.output, path.right)
}
