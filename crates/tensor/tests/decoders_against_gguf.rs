//! Every decoder gives the values of the Python package `gguf`, bit for bit, on the random blocks of
//! `goldens/formats.safetensors` (written by `goldens/formats.py`, which says whose values stand in where the package
//! decodes nothing). What is no number is no number; its other bits may differ.

use gannet_tensor::{Format, TensorView};
use safetensors::SafeTensors;

const GOLDEN: &[u8] = include_bytes!("../../../goldens/formats.safetensors");

fn golden(format: Format) -> (Vec<u8>, Vec<u32>) {
    let golden = SafeTensors::deserialize(GOLDEN).expect("the golden is a safetensors file");
    let bytes = golden.tensor(&format!("{format}.bytes")).expect("blocks of the format").data().to_vec();
    let values = golden.tensor(&format!("{format}.values")).expect("values of the format");
    let values: Vec<f32> =
        values.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    (bytes, bits(&values))
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| if value.is_nan() { f32::NAN } else { *value }.to_bits()).collect()
}

#[test]
fn every_format_decodes_as_the_reference_does() {
    for format in Format::ALL {
        let (bytes, expected) = golden(format);
        assert_eq!(bytes.len() / format.block_bytes() * format.block_elements(), expected.len());
        let mut values = vec![f32::NAN; expected.len()];
        format.decode(&bytes, &mut values);
        let first = bits(&values).iter().zip(&expected).position(|(found, expected)| found != expected);
        assert_eq!(first, None, "{format}: the first value that differs");
    }
}

#[test]
fn a_row_of_a_view_decodes_as_its_place_in_the_whole() {
    for format in Format::ALL {
        let (bytes, expected) = golden(format);
        let shape = [2, 2, expected.len() / 4];
        let view = TensorView::new(format, &shape, &bytes).unwrap();
        let mut row = vec![0.0; shape[2]];
        for index in 0..view.rows() {
            view.decode_row(index, &mut row);
            assert_eq!(bits(&row), expected[index * shape[2]..][..shape[2]], "{format} row {index}");
        }
    }
}

#[test]
fn a_name_stands_for_one_format() {
    let names: std::collections::BTreeSet<_> = Format::ALL.iter().map(|format| format.name()).collect();
    assert_eq!(names.len(), Format::ALL.len());
}

#[test]
#[should_panic(expected = "a run of blocks fills its output")]
fn an_output_of_another_length_is_refused() {
    Format::Q8_0.decode(&[0; 34], &mut [0.0; 64]);
}
