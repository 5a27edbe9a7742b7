fn main() {
    let mut sigs: Vec<cayley::Signature> = codegen::spec::SHIPPED.iter().map(|&(p,q,r)| cayley::Signature::new(p,q,r).unwrap()).collect();
    sigs.sort();
    let files = codegen::emit::rust::emit(&sigs, "cargo xtask gen");
    for f in files { let p = std::path::Path::new("crates/flashcliff/src/generated").join(&f.path); std::fs::create_dir_all(p.parent().unwrap()).unwrap(); std::fs::write(p, f.text).unwrap(); }
}
