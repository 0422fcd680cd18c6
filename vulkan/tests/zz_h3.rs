use bytemuck::{Pod, Zeroable};
use llamay_vulkan::Gpu;
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Push { x: u64, y: u64, out: u64, n: u32, pad: u32 }
#[test]
fn t() {
    let gpu = Gpu::open_any().unwrap();
    let k = gpu.kernel("math_test", &[0]).unwrap();
    for mode in 0..2 {
    let mut xs=vec![]; let mut ys=vec![]; let mut cs=vec![];
    let mut s=1u64; for _ in 0..1000000 { s=s.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(99);
      xs.push(if mode==0 {0xb37ffffe} else {0xb3000000+(s>>41) as u32}); ys.push(0x3f000000+((s>>20) as u32 & 0x7fffff)); cs.push(0); }

    let n=xs.len();
    let (a,b,o)=(gpu.upload(&xs).unwrap(),gpu.upload(&ys).unwrap(),gpu.upload(&cs).unwrap());
    gpu.run_once(&k,&Push{x:a.address(),y:b.address(),out:o.address(),n:n as u32,pad:0},[n.div_ceil(64) as u32,1,1]).unwrap();
    let o=gpu.read::<u32>(&o).unwrap();
    let mut left=4; let (mut un,mut db,mut fu)=(0,0,0);
    for i in 0..n { let (x,y,c)=(f32::from_bits(xs[i]),f32::from_bits(ys[i]),f32::from_bits(ys[i])); let w=x.mul_add(y,c);
      if w.to_bits()==o[i]{fu+=1} else if left>0 {left-=1; println!("mode  {:x} {:x} {:x} want {:x} exact {:e}",xs[i],ys[i],o[i],w.to_bits(),x as f64*y as f64);}; if (x*y+c).to_bits()==o[i]{un+=1}; if ((x as f64*y as f64+c as f64) as f32).to_bits()==o[i]{db+=1}; }
    println!("mode {mode} fused {fu} unfused {un} double {db} of {n}");
    }
}
