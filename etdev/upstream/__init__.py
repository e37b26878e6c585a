"""What etdev relies on in torch and ExecuTorch beyond their documented API, and their versions."""
