//! A shape's weights as a list: their names in GGUF or in safetensors, their shapes, and what random numbers they hold.
//!
//! Matrices keep the variance of what they multiply, so that values stay finite at any depth; norms are near 1.
//! Knows no format and no file.

use super::shapes::{Delta, Experts, Family, Shape};

/// One tensor.
#[derive(Clone, Debug)]
pub(super) struct Weight {
    pub name: String,
    /// Outermost dimension first.
    pub shape: Vec<usize>,
    pub content: Content,
    /// Whether a format of blocks may hold it; vectors, routers and convolutions stay in floats.
    pub quantisable: bool,
}

impl Weight {
    pub(super) fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// What numbers a tensor holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Content {
    /// Close to normal, around `mean`.
    Normal {
        mean: f32,
        deviation: f32,
    },
    Uniform {
        low: f32,
        high: f32,
    },
    /// -exp of a uniform number.
    MinusExponential {
        low: f32,
        high: f32,
    },
    /// These.
    Numbers(Vec<f32>),
}

/// How a kind of file names and stacks its tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Gguf,
    HuggingFace,
}

/// The deviation of norm weights from 1, and of biases from 0.
const SMALL: f32 = 0.05;

/// The logarithm of the decay's rate, and the bias of its time step: with them a head forgets within a few tokens to
/// some hundred.
const LOG_DECAY: (f32, f32) = (-1.0, 2.0);
const TIME_STEP: (f32, f32) = (-4.0, -1.0);

/// All tensors in the order of the file.
pub(super) fn list(shape: &Shape, dialect: Dialect) -> Vec<Weight> {
    let mut list =
        List { shape, dialect, prefixes: ["model.".to_owned(), String::new()], weights: Vec::new() };
    list.matrix("embed_tokens", "token_embd", &[shape.vocabulary, shape.width]);
    if shape.family == Family::Llama && dialect == Dialect::Gguf {
        let content = Content::Numbers(rope_divisors(shape));
        list.push("", "rope_freqs.weight", &[shape.rotated() / 2], content);
    }
    for layer in 0..shape.layers {
        list.prefixes = [format!("model.layers.{layer}."), format!("blk.{layer}.")];
        list.layer(layer);
    }
    list.prefixes = ["model.".to_owned(), String::new()];
    list.norm("norm", "output_norm", shape.width);
    if !shape.tied {
        list.prefixes = [String::new(), String::new()];
        list.matrix("lm_head", "output", &[shape.vocabulary, shape.width]);
    }
    list.weights
}

struct List<'a> {
    shape: &'a Shape,
    dialect: Dialect,
    /// Before the names of Hugging Face and of GGUF.
    prefixes: [String; 2],
    weights: Vec<Weight>,
}

impl List<'_> {
    fn layer(&mut self, layer: usize) {
        let shape = self.shape;
        self.norm("input_layernorm", "attn_norm", shape.width);
        match shape.delta {
            Some(delta) if shape.is_recurrent(layer) => self.delta_rule(&delta),
            Some(_) | None => self.attention(),
        }
        let norm = if shape.delta.is_some() { "post_attention_norm" } else { "ffn_norm" };
        self.norm("post_attention_layernorm", norm, shape.width);
        match shape.experts {
            Some(experts) => self.experts(&experts),
            None => self.gated(["mlp", ""], shape.feed_forward),
        }
    }

    fn attention(&mut self) {
        let Shape { width, heads, kv_heads, head_dim, .. } = *self.shape;
        let (query, key_value) = (heads * head_dim, kv_heads * head_dim);
        // A hybrid's queries have their output gates beside them.
        let gate = if self.shape.delta.is_some() { 2 } else { 1 };
        self.matrix("self_attn.q_proj", "attn_q", &[gate * query, width]);
        self.matrix("self_attn.k_proj", "attn_k", &[key_value, width]);
        self.matrix("self_attn.v_proj", "attn_v", &[key_value, width]);
        match self.shape.family {
            Family::Qwen2 | Family::Qwen2Moe => {
                self.vector("self_attn.q_proj.bias", "attn_q.bias", query, around(0.0));
                self.vector("self_attn.k_proj.bias", "attn_k.bias", key_value, around(0.0));
                self.vector("self_attn.v_proj.bias", "attn_v.bias", key_value, around(0.0));
            }
            Family::Qwen3 | Family::Qwen3Moe | Family::Qwen35 | Family::Qwen35Moe => {
                self.norm("self_attn.q_norm", "attn_q_norm", head_dim);
                self.norm("self_attn.k_norm", "attn_k_norm", head_dim);
            }
            Family::Llama => {}
        }
        self.matrix("self_attn.o_proj", "attn_output", &[width, query]);
    }

    fn delta_rule(&mut self, delta: &Delta) {
        let width = self.shape.width;
        self.matrix("linear_attn.in_proj_qkv", "attn_qkv", &[delta.channels(), width]);
        self.matrix("linear_attn.in_proj_z", "attn_gate", &[delta.value_width(), width]);
        self.matrix("linear_attn.in_proj_b", "ssm_beta", &[delta.value_heads, width]);
        self.matrix("linear_attn.in_proj_a", "ssm_alpha", &[delta.value_heads, width]);
        let convolution: &[usize] = match self.dialect {
            Dialect::Gguf => &[delta.channels(), Delta::KERNEL],
            Dialect::HuggingFace => &[delta.channels(), 1, Delta::KERNEL],
        };
        self.float_matrix("linear_attn.conv1d", "ssm_conv1d", convolution);
        let (low, high) = LOG_DECAY;
        let decay = match self.dialect {
            Dialect::Gguf => Content::MinusExponential { low, high },
            Dialect::HuggingFace => Content::Uniform { low, high },
        };
        self.vector("linear_attn.A_log", "ssm_a", delta.value_heads, decay);
        let (low, high) = TIME_STEP;
        self.vector("linear_attn.dt_bias", "ssm_dt.bias", delta.value_heads, Content::Uniform { low, high });
        // The one norm of a hybrid to which no 1 is added.
        self.vector("linear_attn.norm.weight", "ssm_norm.weight", Delta::HEAD_DIM, around(1.0));
        self.matrix("linear_attn.out_proj", "ssm_out", &[width, delta.value_width()]);
    }

    /// The three matrices of a gated feed-forward; `[block, ending]` make up its names.
    fn gated(&mut self, [block, ending]: [&str; 2], inner: usize) {
        let width = self.shape.width;
        let mut push = |part: &str, shape: &[usize]| {
            self.matrix(&format!("{block}.{part}_proj"), &format!("ffn_{part}{ending}"), shape);
        };
        push("gate", &[inner, width]);
        push("up", &[inner, width]);
        push("down", &[width, inner]);
    }

    fn experts(&mut self, experts: &Experts) {
        let width = self.shape.width;
        let Experts { count, width: inner, .. } = *experts;
        self.float_matrix("mlp.gate", "ffn_gate_inp", &[count, width]);
        match self.dialect {
            Dialect::Gguf => {
                self.matrix("", "ffn_gate_exps", &[count, inner, width]);
                self.matrix("", "ffn_up_exps", &[count, inner, width]);
                self.matrix("", "ffn_down_exps", &[count, width, inner]);
            }
            Dialect::HuggingFace if self.shape.family == Family::Qwen35Moe => {
                self.stack("mlp.experts.gate_up_proj", &[count, 2 * inner, width]);
                self.stack("mlp.experts.down_proj", &[count, width, inner]);
            }
            Dialect::HuggingFace => {
                for expert in 0..count {
                    self.gated([&format!("mlp.experts.{expert}"), ""], inner);
                }
            }
        }
        if let Some(shared) = experts.shared {
            let gate: &[usize] = match self.dialect {
                Dialect::Gguf => &[width],
                Dialect::HuggingFace => &[1, width],
            };
            self.float_matrix("mlp.shared_expert_gate", "ffn_gate_inp_shexp", gate);
            self.gated(["mlp.shared_expert", "_shexp"], shared);
        }
    }

    fn matrix(&mut self, hugging_face: &str, gguf: &str, shape: &[usize]) {
        self.float_matrix(hugging_face, gguf, shape);
        self.weights.last_mut().expect("it was just pushed").quantisable = true;
    }

    /// A matrix that no format of blocks holds.
    fn float_matrix(&mut self, hugging_face: &str, gguf: &str, shape: &[usize]) {
        self.push(&format!("{hugging_face}.weight"), &format!("{gguf}.weight"), shape, like_input(shape));
    }

    /// Matrices under a name without `.weight`, as Hugging Face has fused experts.
    fn stack(&mut self, hugging_face: &str, shape: &[usize]) {
        self.push(hugging_face, "", shape, like_input(shape));
    }

    fn norm(&mut self, hugging_face: &str, gguf: &str, width: usize) {
        // The hybrids' norms are stored less 1, except in GGUF.
        let lacks_one = self.shape.delta.is_some() && self.dialect == Dialect::HuggingFace;
        let mean = if lacks_one { 0.0 } else { 1.0 };
        self.vector(&format!("{hugging_face}.weight"), &format!("{gguf}.weight"), width, around(mean));
    }

    fn vector(&mut self, hugging_face: &str, gguf: &str, width: usize, content: Content) {
        self.push(hugging_face, gguf, &[width], content);
    }

    fn push(&mut self, hugging_face: &str, gguf: &str, shape: &[usize], content: Content) {
        let name = match self.dialect {
            Dialect::HuggingFace => self.prefixes[0].clone() + hugging_face,
            Dialect::Gguf => self.prefixes[1].clone() + gguf,
        };
        self.weights.push(Weight { name, shape: shape.to_vec(), content, quantisable: false });
    }
}

/// Numbers that make the product with a matrix as large as its input.
fn like_input(shape: &[usize]) -> Content {
    let columns = shape.last().copied().unwrap_or(1);
    Content::Normal { mean: 0.0, deviation: 1.0 / (columns as f32).sqrt() }
}

fn around(mean: f32) -> Content {
    Content::Normal { mean, deviation: SMALL }
}

/// What the scaling `llama3` divides each frequency by.
///
/// Source: `_compute_llama3_parameters` of transformers.
fn rope_divisors(shape: &Shape) -> Vec<f32> {
    let scaling = Llama3Scaling::LLAMA_3_1;
    let rotated = shape.rotated();
    let divisor = |pair: usize| {
        let frequency = f64::from(shape.theta).powf(-2.0 * pair as f64 / rotated as f64);
        let turns = scaling.original_context as f64 * frequency / std::f64::consts::TAU;
        if turns > scaling.high_frequency {
            1.0
        } else if turns < scaling.low_frequency {
            scaling.factor
        } else {
            let between = scaling.high_frequency - scaling.low_frequency;
            let smooth = (turns - scaling.low_frequency) / between;
            1.0 / ((1.0 - smooth) / scaling.factor + smooth)
        }
    };
    (0..rotated / 2).map(|pair| divisor(pair) as f32).collect()
}

/// A rope scaling that leaves fast turns and slows the others.
pub(super) struct Llama3Scaling {
    pub factor: f64,
    /// Turns within the original context.
    pub low_frequency: f64,
    pub high_frequency: f64,
    /// Tokens.
    pub original_context: usize,
}

impl Llama3Scaling {
    pub(super) const LLAMA_3_1: Self =
        Self { factor: 8.0, low_frequency: 1.0, high_frequency: 4.0, original_context: 8192 };
}
