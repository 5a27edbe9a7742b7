//! Networks as text, and as drawings.

use std::fmt::{self, Write};

use crate::network::{Extent, Network, Node, Value, in_words};
use crate::relation::Along;
use crate::work::Work;

impl Network {
    fn extent(&self, value: Value) -> String {
        match &self.values[value.0].extent {
            Extent::Shape(axes) => in_words(axes),
            Extent::Saved => "[saved]".to_owned(),
        }
    }

    fn names(&self, values: &[Value]) -> String {
        let names: Vec<&str> = values.iter().map(|&value| self.name(value)).collect();
        names.join(", ")
    }

    fn line(&self, node: &Node) -> String {
        let results = node.outputs.iter();
        let results: Vec<String> = results
            .map(|&value| format!("{} {}", self.name(value), self.extent(value)))
            .collect();
        let along = match &node.work {
            Work::Gather(along) | Work::SegmentSum(along) => self.along(along),
            _ => String::new(),
        };
        format!(
            "{} = {}{along}({})",
            results.join(", "),
            node.work,
            self.names(&node.inputs)
        )
    }

    /// The relations that a gathering or a sum follows.
    fn along(&self, along: &Along) -> String {
        let own = self.relation_name(along.relation);
        match along.minus {
            None => format!(" {own}"),
            Some(minus) => format!(" {own} less {}", self.relation_name(minus)),
        }
    }

    /// The network in the language of Graphviz: a box for each node, an arrow for each value that it reads.
    pub fn dot(&self) -> String {
        let mut text = String::from("digraph network {\n  node [shape=box];\n");
        let ends = self.inputs.iter().chain(&self.parameters);
        for &value in ends {
            let label = format!("{} {}", self.name(value), self.extent(value));
            let _ = writeln!(text, "  v{} [shape=ellipse, label={label:?}];", value.0);
        }
        for (at, node) in self.nodes.iter().enumerate() {
            let label = format!("{}\n{}", node.work, self.extent(node.outputs[0]));
            let _ = writeln!(text, "  n{at} [label={label:?}];");
            for &input in &node.inputs {
                let _ = writeln!(text, "  {} -> n{at};", self.source(input));
            }
        }
        text.push_str("}\n");
        text
    }

    /// The name of what makes a value, in a drawing.
    fn source(&self, value: Value) -> String {
        match self.values[value.0].maker {
            crate::network::Maker::Node(node) => format!("n{node}"),
            _ => format!("v{}", value.0),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &input in &self.inputs {
            writeln!(f, "input {} {}", self.name(input), self.extent(input))?;
        }
        for &parameter in &self.parameters {
            writeln!(
                f,
                "parameter {} {}",
                self.name(parameter),
                self.extent(parameter)
            )?;
        }
        for (name, relation) in &self.relations {
            writeln!(
                f,
                "relation {name} from {} to {}",
                relation.from, relation.to
            )?;
        }
        let mut block = 0;
        for node in &self.nodes {
            if node.block != block {
                block = node.block;
                writeln!(f, "block {block}")?;
            }
            writeln!(f, "{}", self.line(node))?;
        }
        Ok(())
    }
}
