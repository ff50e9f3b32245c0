//! What a command is called when somebody is asked to approve it.

/// Programs whose subcommands say what is done, and how many of these words.
const DEPTHS: &[(&str, usize)] = &[
    ("apt", 1),
    ("apt-get", 1),
    ("aws", 2),
    ("brew", 1),
    ("bundle", 1),
    ("cargo", 1),
    ("docker", 1),
    ("docker compose", 2),
    ("gcloud", 2),
    ("gh", 2),
    ("git", 1),
    ("go", 1),
    ("helm", 1),
    ("kubectl", 1),
    ("make", 1),
    ("npm", 1),
    ("npm run", 2),
    ("pip", 1),
    ("pip3", 1),
    ("pnpm", 1),
    ("poetry", 1),
    ("rustup", 1),
    ("systemctl", 1),
    ("terraform", 1),
    ("uv", 1),
    ("yarn", 1),
];

/// The program and the subcommands that say what a command does: `git push` of `git push --force origin main`.
pub(crate) fn action(command: &str) -> String {
    let mut words = command.split_whitespace();
    let program = words.next().unwrap_or_default();
    let rest: Vec<&str> = words.take_while(|word| is_subcommand(word)).take(2).collect();
    let first = rest.first().map(|word| format!("{program} {word}"));
    let depth = first.as_deref().and_then(depth_of).or_else(|| depth_of(program)).unwrap_or(0);
    let mut action = program.to_owned();
    for word in rest.iter().take(depth) {
        action.push(' ');
        action.push_str(word);
    }
    action
}

fn depth_of(program: &str) -> Option<usize> {
    DEPTHS.iter().find(|(name, _)| *name == program).map(|(_, depth)| *depth)
}

fn is_subcommand(word: &str) -> bool {
    let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':');
    !word.starts_with('-') && word.chars().all(letters)
}

#[cfg(test)]
mod tests {
    use super::action;

    #[test]
    fn a_program_without_subcommands_is_its_own_action() {
        for (command, named) in [("ls -la", "ls"), ("rm x", "rm"), ("", ""), ("./run it", "./run")] {
            assert_eq!(action(command), named);
        }
    }

    #[test]
    fn subcommands_count_as_deep_as_they_say_what_is_done() {
        for (command, named) in [
            ("git push origin main", "git push"),
            ("git", "git"),
            ("docker ps -a", "docker ps"),
            ("docker compose up -d", "docker compose up"),
            ("npm run build", "npm run build"),
            ("npm install left-pad", "npm install"),
            ("aws s3 ls", "aws s3 ls"),
        ] {
            assert_eq!(action(command), named);
        }
    }

    #[test]
    fn flags_and_operators_are_no_subcommands() {
        assert_eq!(action("git -C elsewhere push"), "git");
        assert_eq!(action("git && rm -rf x"), "git");
        assert_eq!(action("cargo;rm x"), "cargo;rm");
    }
}
