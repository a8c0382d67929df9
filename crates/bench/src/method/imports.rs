//! Imports that descriptors lack. The reflection of some servers (grpc-js with proto-loader) returns every file that a
//! service needs, and in none of them which others it imports.

use prost_reflect::prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto};
use std::collections::BTreeMap;

/// Adds to each file those of `files` that declare a type it uses.
pub fn complete(files: &mut [FileDescriptorProto]) {
    let mut declared = BTreeMap::new();
    for file in &*files {
        let mut types = Vec::new();
        let enums = file.enum_type.iter().map(|one| one.name());
        types.extend(enums.map(|name| within(file.package(), name)));
        file.message_type.iter().for_each(|message| declares(file.package(), message, &mut types));
        declared.extend(types.into_iter().map(|name| (name, file.name().to_owned())));
    }
    for file in files {
        let mut used = Vec::new();
        file.message_type.iter().for_each(|message| uses(message, &mut used));
        file.extension.iter().for_each(|field| of_field(field, &mut used));
        for method in file.service.iter().flat_map(|service| &service.method) {
            used.extend([method.input_type().to_owned(), method.output_type().to_owned()]);
        }
        for name in used {
            let Some(from) = declared.get(name.trim_start_matches('.')) else { continue };
            if from != file.name() && !file.dependency.contains(from) {
                file.dependency.push(from.clone());
            }
        }
    }
}

fn within(scope: &str, name: &str) -> String {
    if scope.is_empty() { name.to_owned() } else { format!("{scope}.{name}") }
}

/// Full names of a message and everything in it.
fn declares(scope: &str, message: &DescriptorProto, types: &mut Vec<String>) {
    let own = within(scope, message.name());
    types.extend(message.enum_type.iter().map(|one| within(&own, one.name())));
    message.nested_type.iter().for_each(|nested| declares(&own, nested, types));
    types.push(own);
}

/// Names of the types of a message's fields, and of those in it.
fn uses(message: &DescriptorProto, used: &mut Vec<String>) {
    message.field.iter().chain(&message.extension).for_each(|field| of_field(field, used));
    message.nested_type.iter().for_each(|nested| uses(nested, used));
}

fn of_field(field: &FieldDescriptorProto, used: &mut Vec<String>) {
    used.extend(field.type_name.iter().chain(&field.extendee).cloned());
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost_reflect::DescriptorPool;
    use prost_reflect::prost_types::FileDescriptorSet;
    use prost_reflect::prost_types::field_descriptor_proto::{Label, Type};

    /// `{name}.proto` with a message that has these fields.
    fn file(name: &str, message: DescriptorProto, fields: &[(&str, Type)]) -> FileDescriptorProto {
        let field = |(at, (type_name, kind)): (usize, &(&str, Type))| FieldDescriptorProto {
            name: Some(format!("field_{at}")),
            number: Some(at as i32 + 1),
            label: Some(Label::Optional as i32),
            r#type: Some(*kind as i32),
            type_name: Some((*type_name).to_owned()),
            ..FieldDescriptorProto::default()
        };
        FileDescriptorProto {
            name: Some(format!("{name}.proto")),
            package: Some(name.to_owned()),
            syntax: Some("proto3".into()),
            message_type: vec![DescriptorProto {
                field: fields.iter().enumerate().map(field).collect(),
                ..message
            }],
            ..FileDescriptorProto::default()
        }
    }

    fn message(name: &str) -> DescriptorProto {
        DescriptorProto { name: Some(name.into()), ..DescriptorProto::default() }
    }

    #[test]
    fn files_that_import_nothing_find_what_they_use() {
        let nested = DescriptorProto { nested_type: vec![message("Inner")], ..message("Outer") };
        let mut files = vec![
            file(
                "shop",
                message("Cart"),
                &[(".time.Time", Type::Message), (".deep.Outer.Inner", Type::Message)],
            ),
            file("time", message("Time"), &[]),
            file("deep", nested, &[(".deep.Outer.Inner", Type::Message)]),
        ];
        let linked = |files: &[FileDescriptorProto]| {
            DescriptorPool::from_file_descriptor_set(FileDescriptorSet { file: files.to_vec() })
        };
        linked(&files).expect_err("nothing is imported");
        complete(&mut files);
        let pool = linked(&files).expect("everything is imported");
        assert!(pool.get_message_by_name("shop.Cart").is_some());
        assert_eq!(files[0].dependency, ["time.proto", "deep.proto"]);
        assert!(files[2].dependency.is_empty(), "no file imports itself");
        let before = files.clone();
        complete(&mut files);
        assert_eq!(files, before, "once is enough");
    }
}
